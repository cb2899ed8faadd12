// Command sarama drives sarama for the tests: it produces one number after the other, and reads
// them back, until its standard input ends. Standard output is one line of JSON with the outcome.
// Asked to be a member of a group it tells what happens to it, a line each (member.go). With words of
// its own it passes numbers from topic to topic in transactions (transform.go).
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

const deadline = 60 * time.Second

type call struct {
	Verb       string `json:"verb"`
	Group      string `json:"group"`
	Bootstrap  string `json:"bootstrap"`
	Topic      string `json:"topic"`
	Partitions int32  `json:"partitions"`
	EveryMs    int64  `json:"every_ms"`
}

type outcome struct {
	Acked   []int           `json:"acked"`
	Refused []string        `json:"refused"`
	Read    map[int32][]int `json:"read"`
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	if len(os.Args) > 1 {
		return transform(os.Args[1:])
	}
	input := bufio.NewReader(os.Stdin)
	line, err := input.ReadBytes('\n')
	if err != nil {
		return err
	}
	var asked call
	if err := json.Unmarshal(line, &asked); err != nil {
		return err
	}
	if asked.Verb == "member" {
		return member(asked, input)
	}
	found, err := steady(asked, input)
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"outcome": found})
}

func steady(asked call, input io.Reader) (outcome, error) {
	config := sarama.NewConfig()
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Retry.Max = 50
	config.Net.MaxOpenRequests = 1
	client, err := sarama.NewClient(strings.Split(asked.Bootstrap, ","), config)
	if err != nil {
		return outcome{}, err
	}
	defer client.Close()
	read, err := consume(client, asked)
	if err != nil {
		return outcome{}, err
	}
	found, err := produce(client, asked, input)
	if err != nil {
		return outcome{}, err
	}
	return found, collect(read, &found)
}

// produce goes on until standard input ends and every number has an outcome.
func produce(client sarama.Client, asked call, input io.Reader) (outcome, error) {
	found := outcome{Acked: []int{}, Refused: []string{}, Read: map[int32][]int{}}
	producer, err := sarama.NewAsyncProducerFromClient(client)
	if err != nil {
		return found, err
	}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, input)
		close(ended)
	}()
	go func() {
		defer producer.AsyncClose()
		for number := 0; ; number++ {
			producer.Input() <- &sarama.ProducerMessage{
				Topic:     asked.Topic,
				Partition: int32(number) % asked.Partitions,
				Value:     sarama.StringEncoder(strconv.Itoa(number)),
				Metadata:  number,
			}
			select {
			case <-ended:
				return
			case <-time.After(time.Duration(asked.EveryMs) * time.Millisecond):
			}
		}
	}()
	successes, failures := producer.Successes(), producer.Errors()
	for successes != nil || failures != nil {
		select {
		case message, open := <-successes:
			if !open {
				successes = nil
			} else {
				found.Acked = append(found.Acked, message.Metadata.(int))
			}
		case failure, open := <-failures:
			if !open {
				failures = nil
			} else {
				found.Refused = append(found.Refused, failure.Error())
			}
		}
	}
	return found, nil
}

func consume(client sarama.Client, asked call) (chan *sarama.ConsumerMessage, error) {
	consumer, err := sarama.NewConsumerFromClient(client)
	if err != nil {
		return nil, err
	}
	read := make(chan *sarama.ConsumerMessage, 100_000)
	for partition := range asked.Partitions {
		place, err := consumer.ConsumePartition(asked.Topic, partition, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		go func() {
			for message := range place.Messages() {
				read <- message
			}
		}()
	}
	return read, nil
}

// collect takes as many as were acknowledged.
func collect(read chan *sarama.ConsumerMessage, found *outcome) error {
	late := time.After(deadline)
	for range found.Acked {
		select {
		case message := <-read:
			number, err := strconv.Atoi(string(message.Value))
			if err != nil {
				return err
			}
			found.Read[message.Partition] = append(found.Read[message.Partition], number)
		case <-late:
			return nil // what is missing, the test says
		}
	}
	return nil
}
