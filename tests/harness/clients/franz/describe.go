package main

import (
	"bufio"
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
)

// Facts is what kadm learns about the cluster and one partition.
type Facts struct {
	Cluster       string  `json:"cluster"`
	Brokers       []int32 `json:"brokers"`
	Size          int64   `json:"size"`
	TotalBytes    int64   `json:"total_bytes"`
	UsableBytes   int64   `json:"usable_bytes"`
	Sequences     []int32 `json:"sequences"`
	EpochEnd      int64   `json:"epoch_end"`
	LeaderEpoch   int32   `json:"leader_epoch"`
	Reassignments int     `json:"reassignments"`
	Acls          string  `json:"acls"`
}

// describe asks kadm for everything that one broker knows about a partition of its own.
func describe(ctx context.Context, call Call, _ *bufio.Reader) (Answer, error) {
	return admin(call, func(client *kadm.Client) (Answer, error) {
		facts := &Facts{}
		asks := []func(context.Context, *kadm.Client, Call, *Facts) error{
			askCluster, askLogDirs, askProducers, askEpoch, askReassignments, askAcls,
		}
		for _, ask := range asks {
			if err := ask(ctx, client, call, facts); err != nil {
				return Answer{}, err
			}
		}
		return Answer{Facts: facts}, nil
	})
}

func askCluster(ctx context.Context, client *kadm.Client, call Call, facts *Facts) error {
	found, err := client.Metadata(ctx, call.Topic)
	if err != nil {
		return err
	}
	facts.Cluster = found.Cluster
	facts.Brokers = found.Brokers.NodeIDs()
	return nil
}

func askLogDirs(ctx context.Context, client *kadm.Client, call Call, facts *Facts) error {
	topics := kadm.TopicsSet{call.Topic: {*call.Partition: {}}}
	all, err := client.DescribeAllLogDirs(ctx, topics)
	if err != nil {
		return err
	}
	all.Each(func(directory kadm.DescribedLogDir) {
		facts.TotalBytes, facts.UsableBytes = directory.TotalBytes, directory.UsableBytes
		facts.Size += directory.Size()
		err = directory.Err
	})
	return err
}

func askProducers(ctx context.Context, client *kadm.Client, call Call, facts *Facts) error {
	topics := kadm.TopicsSet{call.Topic: {*call.Partition: {}}}
	found, err := client.DescribeProducers(ctx, topics)
	if err != nil {
		return err
	}
	partition := found[call.Topic].Partitions[*call.Partition]
	for _, producer := range partition.ActiveProducers {
		facts.Sequences = append(facts.Sequences, producer.LastSequence)
	}
	return partition.Err
}

func askEpoch(ctx context.Context, client *kadm.Client, call Call, facts *Facts) error {
	var request kadm.OffsetForLeaderEpochRequest
	request.Add(call.Topic, *call.Partition, 0)
	found, err := client.OffsetForLeaderEpoch(ctx, request)
	if err != nil {
		return err
	}
	end := found[call.Topic][*call.Partition]
	facts.LeaderEpoch, facts.EpochEnd = end.LeaderEpoch, end.EndOffset
	return end.Err
}

func askReassignments(ctx context.Context, client *kadm.Client, _ Call, facts *Facts) error {
	found, err := client.ListPartitionReassignments(ctx, nil)
	facts.Reassignments = len(found)
	return err
}

// askAcls notes why there are none: that is no failure of the call.
func askAcls(ctx context.Context, client *kadm.Client, _ Call, facts *Facts) error {
	filter := kadm.NewACLs().AnyResource().Allow().AllowHosts().Operations()
	found, err := client.DescribeACLs(ctx, filter)
	if err == nil && len(found) > 0 {
		err = found[0].Err
	}
	if err != nil {
		facts.Acls = err.Error()
	}
	return nil
}

func deleteRecords(ctx context.Context, call Call, _ *bufio.Reader) (Answer, error) {
	return admin(call, func(client *kadm.Client) (Answer, error) {
		var offsets kadm.Offsets
		offsets.Add(kadm.Offset{Topic: call.Topic, Partition: *call.Partition, At: call.Start})
		found, err := client.DeleteRecords(ctx, offsets)
		if err != nil {
			return Answer{}, err
		}
		deleted, _ := found.Lookup(call.Topic, *call.Partition)
		return Answer{Low: deleted.LowWatermark}, deleted.Err
	})
}
