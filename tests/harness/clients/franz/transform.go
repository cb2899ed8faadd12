package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// transform reads numbers in a group and writes each to every output, exactly once, until its input
// ends. It ends with an error where only another in its place can go on.
//
// Its words are the bootstrap, the topic to read, which is the group too, the outputs as
// topic:partitions with commas between, its name, and how many numbers a transaction has at most.
func transform(words []string) error {
	source, name := words[1], words[3]
	outputs, err := counts(words[2])
	if err != nil {
		return err
	}
	batch, err := strconv.Atoi(words[4])
	if err != nil {
		return err
	}
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(words[0], ",")...),
		kgo.TransactionalID(name),
		kgo.TransactionTimeout(time.Minute),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumerGroup(source),
		kgo.ConsumeTopics(source),
		// Who is started in its place takes its partitions at once.
		kgo.InstanceID(name),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.MetadataMinAge(50*time.Millisecond),
	)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	// It takes its id with its first record: offsets that were pending when the one before was killed
	// would keep it from reading any, until their transaction's time is up.
	if _, _, err := session.Client().ProducerID(context.Background()); err != nil {
		return err
	}
	for count := 1; ctx.Err() == nil; count++ {
		fetches := session.PollRecords(ctx, batch)
		if fetches.NumRecords() == 0 {
			continue
		}
		tag := fmt.Appendf(nil, "%s/%d/%d", name, os.Getpid(), count)
		if err := pass(session, fetches, outputs, tag); err != nil {
			return err
		}
	}
	session.Close()
	return nil
}

// counts are the partitions of each topic.
func counts(words string) (map[string]int, error) {
	found := map[string]int{}
	for _, word := range strings.Split(words, ",") {
		topic, count, _ := strings.Cut(word, ":")
		partitions, err := strconv.Atoi(count)
		if err != nil {
			return nil, err
		}
		found[topic] = partitions
	}
	return found, nil
}

// pass is one transaction; where it is aborted, its inputs come again.
func pass(
	session *kgo.GroupTransactSession, fetches kgo.Fetches, outputs map[string]int, tag []byte,
) error {
	if err := session.Begin(); err != nil {
		return err
	}
	ctx := context.Background()
	written := kgo.AbortingFirstErrPromise(session.Client())
	for _, record := range fetches.Records() {
		number, err := strconv.Atoi(string(record.Value))
		if err != nil {
			return err
		}
		for topic, partitions := range outputs {
			session.Produce(ctx, &kgo.Record{
				Topic:     topic,
				Partition: int32(number % partitions),
				Key:       tag,
				Value:     record.Value,
			}, written.Promise())
		}
	}
	_, err := session.End(ctx, kgo.TransactionEndTry(written.Err() == nil))
	return err
}
