// franz-go on a leash: one JSON command a line on stdin, one JSON answer a line on stdout.
// Bytes travel as base64 text, null as null.
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

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const wait = 30 * time.Second

type command struct {
	Op                string
	Bootstrap         string
	Topic             string
	Settings          map[string]string
	Records           []sentRecord
	Partition         int32
	Offset            int64
	Count             int
	Committed         bool
	Partitions        int32
	ReplicationFactor int16 `json:"replication_factor"`
	Configs           map[string]*string
	ValidateOnly      bool `json:"validate_only"`
	Total             int
	Timestamp         int64
	Member            string
	Id                string
	Group             string
	Balancer          string
	Read              string
}

// A record as the scenario tells it: [key, value, timestamp, partition, [[header, value], ...]].
type sentRecord struct {
	key, value []byte
	timestamp  *int64
	partition  int32
	headers    []kgo.RecordHeader
}

func (r *sentRecord) UnmarshalJSON(data []byte) error {
	var headers [][2]json.RawMessage
	if err := json.Unmarshal(data, &[]any{&r.key, &r.value, &r.timestamp, &r.partition, &headers}); err != nil {
		return err
	}
	for _, one := range headers {
		var header kgo.RecordHeader
		if err := json.Unmarshal(one[0], &header.Key); err != nil {
			return err
		}
		if err := json.Unmarshal(one[1], &header.Value); err != nil {
			return err
		}
		r.headers = append(r.headers, header)
	}
	return nil
}

func told(record *kgo.Record) []any {
	headers := [][2]any{}
	for _, header := range record.Headers {
		headers = append(headers, [2]any{header.Key, header.Value})
	}
	return []any{record.Offset, record.Key, record.Value, headers, record.Timestamp.UnixMilli()}
}

type watching struct {
	records [][]any
	err     error
}

var watched chan watching

func main() {
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	answers := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return
		}
		var asked command
		answer := map[string]any{}
		err = json.Unmarshal(line, &asked)
		var ok any
		if err == nil {
			ok, err = run(&asked)
		}
		if err == nil {
			answer["ok"] = ok
		} else {
			answer["error"] = code(err)
			answer["text"] = err.Error()
		}
		if answers.Encode(answer) != nil {
			return
		}
	}
}

func code(err error) int16 {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Code
	}
	return -1
}

func run(asked *command) (any, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	switch asked.Op {
	case "produce":
		return produce(ctx, asked)
	case "consume":
		return consume(ctx, asked, nil)
	case "transact":
		return transact(ctx, asked)
	case "watch":
		return nil, watch(asked)
	case "watched":
		seen := <-watched
		return seen.records, seen.err
	default:
		if strings.HasPrefix(asked.Op, "member_") {
			return aboutMember(ctx, asked)
		}
		return ask(ctx, asked)
	}
}

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

var acknowledgements = map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}

type number interface{ int | int32 }

func setting[N number](asked *command, name string) N {
	var value N
	fmt.Sscan(asked.Settings[name], &value)
	return value
}

func produce(ctx context.Context, asked *command) (any, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(asked.Bootstrap),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.AllowAutoTopicCreation(),
		kgo.ProducerLinger(5 * time.Millisecond),
		kgo.ProducerBatchCompression(codecs[asked.Settings["compression.type"]]),
		kgo.RequiredAcks(acknowledgements[asked.Settings["acks"]]),
		kgo.ProducerBatchMaxBytes(setting[int32](asked, "max.request.size")),
	}
	if asked.Settings["enable.idempotence"] != "true" {
		options = append(options, kgo.DisableIdempotentWrite(), kgo.MaxProduceRequestsInflightPerBroker(1))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := make([]*kgo.Record, 0, len(asked.Records))
	for _, one := range asked.Records {
		record := &kgo.Record{
			Topic: asked.Topic, Key: one.key, Value: one.value, Partition: one.partition, Headers: one.headers,
		}
		if one.timestamp != nil {
			record.Timestamp = time.UnixMilli(*one.timestamp)
		}
		records = append(records, record)
	}
	results := client.ProduceSync(ctx, records...)
	if err := results.FirstErr(); err != nil {
		return nil, err
	}
	offsets := make([]int64, 0, len(records))
	for _, record := range records {
		if asked.Settings["acks"] == "0" {
			record.Offset = -1
		}
		offsets = append(offsets, record.Offset)
	}
	return offsets, nil
}

func consume(ctx context.Context, asked *command, polling chan<- struct{}) ([][]any, error) {
	isolation := kgo.ReadUncommitted()
	if asked.Committed {
		isolation = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(asked.Bootstrap),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
			asked.Topic: {asked.Partition: kgo.NewOffset().At(asked.Offset)},
		}),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchIsolationLevel(isolation),
		kgo.FetchMaxPartitionBytes(4<<20),
		kgo.KeepRetryableFetchErrors(),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	if polling != nil {
		short, done := context.WithTimeout(ctx, 200*time.Millisecond) // the first fetch is on its way by then
		client.PollFetches(short)
		done()
		close(polling)
	}
	records := [][]any{}
	for len(records) < asked.Count {
		fetches := client.PollFetches(ctx)
		// A topic's leader may hear of its epoch later than the client does.
		if err := fetches.Err(); err != nil && !errors.Is(err, kerr.UnknownLeaderEpoch) {
			return nil, err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			if len(records) < asked.Count {
				records = append(records, told(record))
			}
		})
	}
	return records, nil
}

func watch(asked *command) error {
	polling := make(chan struct{})
	watched = make(chan watching, 1)
	request := *asked
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		records, err := consume(ctx, &request, polling)
		watched <- watching{records, err}
	}()
	select {
	case <-polling:
		return nil
	case <-time.After(wait):
		return errors.New("the consumer did not begin")
	}
}

func ask(ctx context.Context, asked *command) (any, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(asked.Bootstrap))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	admin := kadm.NewClient(client)
	switch asked.Op {
	case "create_topic":
		create := admin.CreateTopics
		if asked.ValidateOnly {
			create = admin.ValidateCreateTopics
		}
		answers, err := create(ctx, asked.Partitions, asked.ReplicationFactor, asked.Configs, asked.Topic)
		if err != nil {
			return nil, err
		}
		return nil, answers[asked.Topic].Err
	case "delete_topic":
		answers, err := admin.DeleteTopics(ctx, asked.Topic)
		if err != nil {
			return nil, err
		}
		return nil, answers[asked.Topic].Err
	case "create_partitions":
		answers, err := admin.UpdatePartitions(ctx, asked.Total, asked.Topic)
		if err != nil {
			return nil, err
		}
		return nil, answers[asked.Topic].Err
	case "list_topics":
		topics, err := admin.ListTopics(ctx)
		if err != nil {
			return nil, err
		}
		return topics.Names(), nil
	case "describe_topic":
		return describeTopic(ctx, admin, asked.Topic)
	case "describe_configs":
		return describeConfigs(ctx, admin, asked.Topic)
	case "alter_configs":
		return nil, alterConfigs(ctx, admin, asked)
	case "describe_cluster":
		return describeCluster(ctx, admin)
	case "list_offset":
		return listOffset(ctx, client, asked)
	}
	return nil, fmt.Errorf("%s is not known", asked.Op)
}
