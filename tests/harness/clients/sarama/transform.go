package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
)

const gather = 20 * time.Millisecond

// transformer reads numbers in a group and writes each to every output, exactly once.
//
// sarama's consumer takes offsets that a transaction may change yet. So each partition has a
// transactional id of its own: whoever gets the partition ends by it what the one before left, and
// looks once more where to begin.
type transformer struct {
	client  sarama.Client
	source  string
	outputs map[string]int
	name    string
	batch   int
	count   atomic.Int64
}

// transform goes on until its input ends. Its words are the bootstrap, the topic to read, which is
// the group too, the outputs as topic:partitions with commas between, its name, and how many numbers
// a transaction has at most.
func transform(words []string) error {
	outputs, err := counts(words[2])
	if err != nil {
		return err
	}
	batch, err := strconv.Atoi(words[4])
	if err != nil {
		return err
	}
	client, err := sarama.NewClient(strings.Split(words[0], ","), reading(words[3]))
	if err != nil {
		return err
	}
	defer client.Close()
	group, err := sarama.NewConsumerGroupFromClient(words[1], client)
	if err != nil {
		return err
	}
	go func() {
		for failure := range group.Errors() {
			fmt.Fprintln(os.Stderr, failure)
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	at := &transformer{
		client: client, source: words[1], outputs: outputs, name: words[3], batch: batch,
	}
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{at.source}, at); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	return group.Close()
}

func reading(name string) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	// Who is started in its place takes its partitions at once.
	config.Consumer.Group.InstanceId = name
	config.Consumer.Group.Heartbeat.Interval = 100 * time.Millisecond
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Consumer.Return.Errors = true
	return config
}

func writing(id string) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Net.MaxOpenRequests = 1
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Partitioner = sarama.NewManualPartitioner
	config.Producer.Retry.Max = 50
	config.Producer.Transaction.ID = id
	config.Producer.Transaction.Retry.Max = 200
	config.Producer.Transaction.Retry.Backoff = 50 * time.Millisecond
	return config
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

func (*transformer) Setup(sarama.ConsumerGroupSession) error { return nil }

func (*transformer) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim returns, and the group is joined anew, where it cannot go on.
func (one *transformer) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	id := fmt.Sprintf("%s-%d", one.source, claim.Partition())
	brokers := make([]string, 0)
	for _, broker := range one.client.Brokers() {
		brokers = append(brokers, broker.Addr())
	}
	producer, err := sarama.NewAsyncProducer(brokers, writing(id))
	if err != nil {
		return err
	}
	go func() {
		for failure := range producer.Errors() {
			fmt.Fprintln(os.Stderr, failure)
		}
	}()
	defer producer.AsyncClose()
	stable, err := one.stable(claim.Partition())
	if err != nil {
		return err
	}
	if stable != max(claim.InitialOffset(), -1) {
		return fmt.Errorf("partition %d begins at %d, not %d",
			claim.Partition(), stable, claim.InitialOffset())
	}
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			if err := one.pass(producer, session, one.gathered(claim, message)); err != nil {
				return err
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

// stable is where the group begins, once no open transaction can change that; -1: nowhere yet.
func (one *transformer) stable(partition int32) (int64, error) {
	coordinator, err := one.client.Coordinator(one.source)
	if err != nil {
		return 0, err
	}
	request := sarama.NewOffsetFetchRequest(
		sarama.V2_5_0_0, one.source, map[string][]int32{one.source: {partition}})
	request.RequireStable = true
	answer, err := coordinator.FetchOffset(request)
	if err != nil {
		_ = one.client.RefreshCoordinator(one.source)
		return 0, err
	}
	block := answer.GetBlock(one.source, partition)
	if block == nil {
		return 0, answer.Err
	}
	if block.Err != sarama.ErrNoError {
		_ = one.client.RefreshCoordinator(one.source)
		return 0, block.Err
	}
	return block.Offset, nil
}

// gathered are the numbers of one transaction.
func (one *transformer) gathered(
	claim sarama.ConsumerGroupClaim, first *sarama.ConsumerMessage,
) []*sarama.ConsumerMessage {
	found := []*sarama.ConsumerMessage{first}
	late := time.After(gather)
	for len(found) < one.batch {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return found
			}
			found = append(found, message)
		case <-late:
			return found
		}
	}
	return found
}

// pass is one transaction. One that fails is ended by whoever gets the partition next.
func (one *transformer) pass(
	producer sarama.AsyncProducer,
	session sarama.ConsumerGroupSession,
	messages []*sarama.ConsumerMessage,
) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	last := messages[len(messages)-1]
	tag := fmt.Sprintf("%s/%d/%d", one.name, os.Getpid(), one.count.Add(1))
	for _, message := range messages {
		number, err := strconv.Atoi(string(message.Value))
		if err != nil {
			return err
		}
		for topic, partitions := range one.outputs {
			producer.Input() <- &sarama.ProducerMessage{
				Topic:     topic,
				Partition: int32(number % partitions),
				Key:       sarama.StringEncoder(tag),
				Value:     sarama.ByteEncoder(message.Value),
			}
		}
	}
	member := &sarama.ConsumerGroupMetadata{
		GroupID:         one.source,
		GenerationID:    session.GenerationID(),
		MemberID:        session.MemberID(),
		GroupInstanceID: &one.name,
	}
	if err := producer.AddMessageToTxnWithGroupMetadata(last, member, nil); err != nil {
		return err
	}
	return producer.CommitTxn()
}
