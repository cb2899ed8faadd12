package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const fetchBytesMax = 16 << 20

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

// produce sends each record as its line arrives, so that the test sets the pace.
func produce(ctx context.Context, call Call, input *bufio.Reader) (Answer, error) {
	client, err := connect(call, producerOptions(call)...)
	if err != nil {
		return Answer{}, err
	}
	defer client.Close()
	var sent []*kgo.Record
	var failures []error
	for {
		line, err := input.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return Answer{}, err
		}
		record, err := toSend(call, line)
		if err != nil {
			return Answer{}, err
		}
		sent = append(sent, record)
		client.Produce(ctx, record, func(_ *kgo.Record, err error) {
			failures = append(failures, err) // promises run one at a time
		})
	}
	if err := client.Flush(ctx); err != nil {
		return Answer{}, err
	}
	answer := Answer{}
	for _, record := range sent {
		answer.Positions = append(answer.Positions, [2]int64{int64(record.Partition), record.Offset})
	}
	return answer, errors.Join(failures...)
}

func producerOptions(call Call) []kgo.Opt {
	options := []kgo.Opt{
		kgo.DefaultProduceTopic(call.Topic),
		kgo.AllowAutoTopicCreation(),
		kgo.ProducerBatchCompression(codecs[call.Codec]),
		kgo.ProducerBatchMaxBytes(call.RequestBytesMax),
		kgo.ProducerLinger(time.Duration(call.LingerMs) * time.Millisecond),
	}
	if call.Partition != nil {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	if !call.Idempotent {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	return options
}

func toSend(call Call, line []byte) (*kgo.Record, error) {
	var given Record
	if err := json.Unmarshal(line, &given); err != nil {
		return nil, err
	}
	record := &kgo.Record{
		Key:       given.Key,
		Value:     given.Value,
		Timestamp: time.UnixMilli(given.TimestampMs),
	}
	for _, header := range given.Headers {
		record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Key, Value: header.Value})
	}
	if call.Partition != nil {
		record.Partition = *call.Partition
	}
	return record, nil
}

func read(ctx context.Context, call Call, _ *bufio.Reader) (Answer, error) {
	place := map[int32]kgo.Offset{*call.Partition: kgo.NewOffset().At(call.Start)}
	client, err := connect(
		call,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{call.Topic: place}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxPartitionBytes(fetchBytesMax),
		kgo.FetchMaxBytes(2*fetchBytesMax),
	)
	if err != nil {
		return Answer{}, err
	}
	defer client.Close()
	answer := Answer{}
	for len(answer.Records) < call.Count {
		fetches := client.PollRecords(ctx, call.Count-len(answer.Records))
		for _, failure := range fetches.Errors() {
			err := fmt.Errorf("%d of %d records: %w", len(answer.Records), call.Count, failure.Err)
			return Answer{}, err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			answer.Records = append(answer.Records, received(record))
		})
	}
	return answer, nil
}

func received(record *kgo.Record) Record {
	found := Record{
		Partition:   record.Partition,
		Offset:      record.Offset,
		Key:         record.Key,
		Value:       record.Value,
		TimestampMs: record.Timestamp.UnixMilli(),
	}
	for _, header := range record.Headers {
		found.Headers = append(found.Headers, Header{Key: header.Key, Value: header.Value})
	}
	return found
}
