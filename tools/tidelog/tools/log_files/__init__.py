"""The files of brokers and coordinators, read by somebody who owns none of them."""
