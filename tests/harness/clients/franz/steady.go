package main

import (
	"bufio"
	"context"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Outcome is what a steady run was told and what it read, by partition.
type Outcome struct {
	Acked   []int           `json:"acked"`
	Refused []string        `json:"refused"`
	Read    map[int32][]int `json:"read"`
}

// steady produces one number after the other, and reads them back, until its input ends.
func steady(ctx context.Context, call Call, input *bufio.Reader) (Answer, error) {
	places := map[int32]kgo.Offset{}
	for partition := range call.Partitions {
		places[partition] = kgo.NewOffset().At(0)
	}
	client, err := connect(
		call,
		kgo.DefaultProduceTopic(call.Topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{call.Topic: places}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	)
	if err != nil {
		return Answer{}, err
	}
	defer client.Close()
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, input)
		close(ended)
	}()
	outcome := &Outcome{Acked: []int{}, Refused: []string{}, Read: map[int32][]int{}}
	var lock sync.Mutex
	produced := produceUntil(ctx, call, client, ended, func(number int, err error) {
		lock.Lock()
		defer lock.Unlock()
		if err == nil {
			outcome.Acked = append(outcome.Acked, number)
		} else {
			outcome.Refused = append(outcome.Refused, err.Error())
		}
	})
	all := -1
	for read := 0; all < 0 || read < all; {
		select {
		case <-produced:
			lock.Lock()
			all = len(outcome.Acked)
			lock.Unlock()
			produced = nil
		case <-ctx.Done():
			return Answer{Outcome: outcome}, ctx.Err()
		default:
		}
		wait, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		fetches := client.PollFetches(wait)
		cancel()
		fetches.EachRecord(func(record *kgo.Record) {
			number, _ := strconv.Atoi(string(record.Value))
			outcome.Read[record.Partition] = append(outcome.Read[record.Partition], number)
			read++
		})
	}
	return Answer{Outcome: outcome}, nil
}

// produceUntil sends a number at each tick; the channel it returns ends when all have an outcome.
func produceUntil(
	ctx context.Context, call Call, client *kgo.Client, ended chan struct{}, told func(int, error),
) chan struct{} {
	produced := make(chan struct{})
	go func() {
		defer close(produced)
		ticker := time.NewTicker(time.Duration(call.EveryMs) * time.Millisecond)
		defer ticker.Stop()
		for number := 0; ; number++ {
			record := &kgo.Record{
				Value:     []byte(strconv.Itoa(number)),
				Partition: int32(number) % call.Partitions,
			}
			client.Produce(ctx, record, func(_ *kgo.Record, err error) { told(number, err) })
			select {
			case <-ended:
				if err := client.Flush(ctx); err != nil {
					told(-1, err)
				}
				return
			case <-ticker.C:
			}
		}
	}()
	return produced
}
