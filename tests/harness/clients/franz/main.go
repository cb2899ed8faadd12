// Command franz drives franz-go for the tests. The first line of standard input is the call, the
// lines after it are records to produce; standard output is one line of JSON with the answer. A
// member of a group tells more lines before, one for each thing that happens to it. With words of its
// own it passes numbers from topic to topic in transactions (transform.go).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const deadline = 60 * time.Second

// Call says what to do; each verb reads the fields it needs.
type Call struct {
	Verb            string            `json:"verb"`
	Bootstrap       string            `json:"bootstrap"`
	Topic           string            `json:"topic"`
	Partition       *int32            `json:"partition"`
	Partitions      int32             `json:"partitions"`
	Configs         map[string]string `json:"configs"`
	Start           int64             `json:"start"`
	Count           int               `json:"count"`
	TimestampMs     int64             `json:"timestamp_ms"`
	Codec           string            `json:"codec"`
	Idempotent      bool              `json:"idempotent"`
	RequestBytesMax int32             `json:"request_bytes_max"`
	LingerMs        int64             `json:"linger_ms"`
	EveryMs         int64             `json:"every_ms"`
	Group           string            `json:"group"`
	Assignor        string            `json:"assignor"`
}

// Record travels in base64; null stays null.
type Record struct {
	Partition   int32    `json:"partition"`
	Offset      int64    `json:"offset"`
	Key         []byte   `json:"key"`
	Value       []byte   `json:"value"`
	Headers     []Header `json:"headers"`
	TimestampMs int64    `json:"timestamp_ms"`
}

// Header is one header of a record.
type Header struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// Answer holds the fields that the verb fills.
type Answer struct {
	Code       int16      `json:"code,omitempty"`
	Failure    string     `json:"failure,omitempty"`
	Partitions int        `json:"partitions"`
	Positions  [][2]int64 `json:"positions,omitempty"`
	Records    []Record   `json:"records,omitempty"`
	Low        int64      `json:"low"`
	High       int64      `json:"high"`
	Offset     *int64     `json:"offset"`
	Facts      *Facts     `json:"facts,omitempty"`
	Outcome    *Outcome   `json:"outcome,omitempty"`
}

var verbs = map[string]func(context.Context, Call, *bufio.Reader) (Answer, error){
	"create_topic":    createTopic,
	"delete_records":  deleteRecords,
	"delete_topic":    deleteTopic,
	"describe":        describe,
	"member":          member,
	"partitions":      partitions,
	"span":            span,
	"offset_for_time": offsetForTime,
	"produce":         produce,
	"read":            read,
	"steady":          steady,
}

func main() {
	if len(os.Args) > 1 {
		if err := transform(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	answer, failure := run(bufio.NewReaderSize(os.Stdin, 1<<20))
	var refused *kerr.Error
	if errors.As(failure, &refused) {
		answer.Code = refused.Code
	}
	if failure != nil {
		answer.Failure = failure.Error()
	}
	if err := json.NewEncoder(os.Stdout).Encode(answer); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(input *bufio.Reader) (Answer, error) {
	var call Call
	line, err := input.ReadBytes('\n')
	if err != nil {
		return Answer{}, err
	}
	if err := json.Unmarshal(line, &call); err != nil {
		return Answer{}, err
	}
	verb, known := verbs[call.Verb]
	if !known {
		return Answer{}, fmt.Errorf("no verb %q", call.Verb)
	}
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	return verb(ctx, call, input)
}

func connect(call Call, options ...kgo.Opt) (*kgo.Client, error) {
	seeds := kgo.SeedBrokers(strings.Split(call.Bootstrap, ",")...)
	// A topic just made may lack a leader at the first look; the default looks again after 5 s.
	again := kgo.MetadataMinAge(100 * time.Millisecond)
	return kgo.NewClient(append([]kgo.Opt{seeds, again}, options...)...)
}
