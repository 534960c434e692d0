package main

import (
	"context"
	"strconv"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Commits and aborts alone, then copies a topic in transactions of a group: one that is aborted, one that is committed.
func transact(ctx context.Context, asked *command) (any, error) {
	producer, err := kgo.NewClient(
		kgo.SeedBrokers(asked.Bootstrap), kgo.TransactionalID(asked.Id), kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		return nil, err
	}
	for turn := 0; turn < 4; turn++ {
		if err := producer.BeginTransaction(); err != nil {
			return nil, err
		}
		for partition := int32(0); partition < 2; partition++ {
			record := &kgo.Record{Topic: asked.Topic, Partition: partition, Value: []byte("turn " + strconv.Itoa(turn))}
			if err := producer.ProduceSync(ctx, record).FirstErr(); err != nil {
				return nil, err
			}
		}
		if err := producer.EndTransaction(ctx, kgo.TransactionEndTry(turn%2 == 0)); err != nil {
			return nil, err
		}
	}
	producer.Close()
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(asked.Bootstrap),
		kgo.TransactionalID(asked.Id+"-copy"),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Read),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	aborted, copied := false, 0
	for copied < asked.Count {
		fetches := session.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, err
		}
		if err := session.Begin(); err != nil {
			return nil, err
		}
		count := 0
		fetches.EachRecord(func(record *kgo.Record) {
			count++
			session.Produce(ctx, &kgo.Record{Topic: asked.Topic, Partition: 0, Value: record.Value}, nil)
		})
		if count == 0 {
			continue
		}
		commit := kgo.TryCommit
		if !aborted {
			commit, aborted = kgo.TryAbort, true
		}
		committed, err := session.End(ctx, commit)
		if err != nil {
			return nil, err
		}
		if committed {
			copied += count
		}
	}
	return copied, nil
}
