package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// telling writes what happens to a member, a line of JSON each; callbacks run beside the polling.
type telling struct {
	lock sync.Mutex
	has  []int32
}

func (told *telling) say(what map[string]any) {
	told.lock.Lock()
	defer told.lock.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(what)
}

func (told *telling) change(topic string, given, taken map[string][]int32) {
	told.lock.Lock()
	told.has = slices.DeleteFunc(told.has, func(partition int32) bool {
		return slices.Contains(taken[topic], partition)
	})
	told.has = append(told.has, given[topic]...)
	has := append([]int32{}, told.has...)
	told.lock.Unlock()
	told.say(map[string]any{"has": has})
}

// member is in a group until its input ends; each line of its input has it commit what it read.
func member(_ context.Context, call Call, input *bufio.Reader) (Answer, error) {
	told := &telling{}
	given := func(_ context.Context, _ *kgo.Client, places map[string][]int32) {
		told.change(call.Topic, places, nil)
	}
	taken := func(_ context.Context, _ *kgo.Client, places map[string][]int32) {
		told.change(call.Topic, nil, places)
	}
	balancers := kgo.Balancers(kgo.CooperativeStickyBalancer())
	if call.Assignor == "range" {
		balancers = kgo.Balancers(kgo.RangeBalancer())
	}
	client, err := connect(
		call,
		balancers,
		kgo.ConsumerGroup(call.Group),
		kgo.ConsumeTopics(call.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.HeartbeatInterval(100*time.Millisecond),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.OnPartitionsAssigned(given),
		kgo.OnPartitionsRevoked(taken),
		kgo.OnPartitionsLost(taken),
	)
	if err != nil {
		return Answer{}, err
	}
	defer client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	failed := make(chan error, 1)
	go func() {
		defer cancel()
		for {
			if _, err := input.ReadBytes('\n'); err != nil {
				return
			}
			if err := client.CommitUncommittedOffsets(ctx); err != nil {
				failed <- err
				return
			}
			told.say(map[string]any{"committed": true})
		}
	}()
	for ctx.Err() == nil {
		client.PollFetches(ctx).EachRecord(func(record *kgo.Record) {
			told.say(map[string]any{"read": [2]int64{int64(record.Partition), record.Offset}})
		})
	}
	select {
	case err := <-failed:
		return Answer{}, err
	default:
		return Answer{}, nil
	}
}
