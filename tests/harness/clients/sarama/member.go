package main

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

// telling writes what happens to a member, a line of JSON each, and keeps its generation.
type telling struct {
	topic   string
	lock    sync.Mutex
	session sarama.ConsumerGroupSession
}

func (told *telling) say(what map[string]any) {
	told.lock.Lock()
	defer told.lock.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(what)
}

func (told *telling) begin(session sarama.ConsumerGroupSession, has []int32) {
	told.lock.Lock()
	told.session = session
	told.lock.Unlock()
	told.say(map[string]any{"has": has})
}

func (told *telling) Setup(session sarama.ConsumerGroupSession) error {
	told.begin(session, append([]int32{}, session.Claims()[told.topic]...))
	return nil
}

func (told *telling) Cleanup(sarama.ConsumerGroupSession) error {
	told.begin(nil, []int32{})
	return nil
}

func (told *telling) ConsumeClaim(
	session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim,
) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
		told.say(map[string]any{"read": [2]int64{int64(message.Partition), message.Offset}})
	}
	return nil
}

// commit commits what was read; sarama tells what went wrong elsewhere.
func (told *telling) commit() {
	told.lock.Lock()
	session := told.session
	told.lock.Unlock()
	if session != nil {
		session.Commit()
		told.say(map[string]any{"committed": true})
	}
}

// member is in a group until its input ends; each line of its input has it commit what it read.
func member(asked call, input *bufio.Reader) error {
	config := sarama.NewConfig()
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Heartbeat.Interval = 100 * time.Millisecond
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Consumer.Return.Errors = true
	group, err := sarama.NewConsumerGroup(strings.Split(asked.Bootstrap, ","), asked.Group, config)
	if err != nil {
		return err
	}
	told := &telling{topic: asked.Topic}
	go func() {
		for failure := range group.Errors() {
			told.say(map[string]any{"failure": failure.Error()})
		}
	}()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		for {
			if _, err := input.ReadBytes('\n'); err != nil {
				return
			}
			told.commit()
		}
	}()
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{asked.Topic}, told); err != nil {
			return err
		}
	}
	return group.Close()
}
