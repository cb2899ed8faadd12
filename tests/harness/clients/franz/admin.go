package main

import (
	"bufio"
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
)

func admin(call Call, ask func(*kadm.Client) (Answer, error)) (Answer, error) {
	client, err := connect(call)
	if err != nil {
		return Answer{}, err
	}
	defer client.Close()
	return ask(kadm.NewClient(client))
}

func createTopic(ctx context.Context, call Call, _ *bufio.Reader) (Answer, error) {
	return admin(call, func(client *kadm.Client) (Answer, error) {
		configs := make(map[string]*string, len(call.Configs))
		for name, value := range call.Configs {
			configs[name] = kadm.StringPtr(value)
		}
		_, err := client.CreateTopic(ctx, call.Partitions, 1, configs, call.Topic)
		return Answer{}, err
	})
}

func deleteTopic(ctx context.Context, call Call, _ *bufio.Reader) (Answer, error) {
	return admin(call, func(client *kadm.Client) (Answer, error) {
		response, err := client.DeleteTopic(ctx, call.Topic)
		if err == nil {
			err = response.Err
		}
		return Answer{}, err
	})
}

// partitions asks for all topics, because asking for one by name may create it.
func partitions(ctx context.Context, call Call, _ *bufio.Reader) (Answer, error) {
	return admin(call, func(client *kadm.Client) (Answer, error) {
		topics, err := client.ListTopics(ctx)
		return Answer{Partitions: len(topics[call.Topic].Partitions)}, err
	})
}

func span(ctx context.Context, call Call, _ *bufio.Reader) (Answer, error) {
	return admin(call, func(client *kadm.Client) (Answer, error) {
		starts, err := client.ListStartOffsets(ctx, call.Topic)
		if err != nil {
			return Answer{}, err
		}
		ends, err := client.ListEndOffsets(ctx, call.Topic)
		if err != nil {
			return Answer{}, err
		}
		low, _ := starts.Lookup(call.Topic, *call.Partition)
		high, _ := ends.Lookup(call.Topic, *call.Partition)
		if low.Err != nil {
			return Answer{}, low.Err
		}
		return Answer{Low: low.Offset, High: high.Offset}, high.Err
	})
}

func offsetForTime(ctx context.Context, call Call, _ *bufio.Reader) (Answer, error) {
	return admin(call, func(client *kadm.Client) (Answer, error) {
		found, err := client.ListOffsetsAfterMilli(ctx, call.TimestampMs, call.Topic)
		if err != nil {
			return Answer{}, err
		}
		listed, _ := found.Lookup(call.Topic, *call.Partition)
		// kadm puts the end of the partition where no record is that young; only a record has
		// a timestamp.
		if listed.Timestamp < 0 {
			return Answer{}, listed.Err
		}
		return Answer{Offset: &listed.Offset}, listed.Err
	})
}
