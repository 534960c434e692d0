package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A member of a group: it polls on its own until it leaves; what it owns and has read is looked at in between.
type member struct {
	client *kgo.Client
	stop   context.CancelFunc
	polled chan struct{}
	mutex  sync.Mutex
	owned  map[int32]bool
	read   []string
	failed error
}

var members = map[string]*member{}

var balancers = map[string][]kgo.GroupOpt{
	"eager":       {kgo.Balancers(kgo.RangeBalancer())},
	"cooperative": {kgo.Balancers(kgo.CooperativeStickyBalancer())},
	"server":      {kgo.Balancers(kgo.RangeBalancer()), kgo.ServerSideBalancer()},
}

func (m *member) owns(partitions map[string][]int32, now bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for _, listed := range partitions {
		for _, partition := range listed {
			if now {
				m.owned[partition] = true
			} else {
				delete(m.owned, partition)
			}
		}
	}
}

func join(asked *command) error {
	m := &member{owned: map[int32]bool{}, polled: make(chan struct{})}
	given := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) { m.owns(partitions, true) }
	taken := func(_ context.Context, _ *kgo.Client, partitions map[string][]int32) { m.owns(partitions, false) }
	options := []kgo.Opt{
		kgo.SeedBrokers(asked.Bootstrap),
		kgo.ConsumerGroup(asked.Group),
		kgo.ConsumeTopics(asked.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(6 * time.Second),
		kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.OnPartitionsAssigned(given),
		kgo.OnPartitionsRevoked(taken),
		kgo.OnPartitionsLost(taken),
	}
	for _, option := range balancers[asked.Balancer] {
		options = append(options, option)
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	m.client, m.stop = client, stop
	members[asked.Member] = m
	go m.poll(ctx)
	return nil
}

func (m *member) poll(ctx context.Context) {
	defer close(m.polled)
	for ctx.Err() == nil {
		fetches := m.client.PollFetches(ctx)
		m.mutex.Lock()
		if err := fetches.Err(); err != nil && !errors.Is(err, context.Canceled) {
			m.failed = err
		}
		fetches.EachRecord(func(record *kgo.Record) { m.read = append(m.read, string(record.Value)) })
		m.mutex.Unlock()
	}
}

func look(m *member) (any, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.failed != nil {
		return nil, m.failed
	}
	owned := []int{}
	for partition := range m.owned {
		owned = append(owned, int(partition))
	}
	sort.Ints(owned)
	return map[string]any{"owned": owned, "read": append([]string{}, m.read...)}, nil
}

func aboutMember(ctx context.Context, asked *command) (any, error) {
	if asked.Op == "member_join" {
		return nil, join(asked)
	}
	m := members[asked.Member]
	if m == nil {
		return nil, fmt.Errorf("%s has not joined", asked.Member)
	}
	switch asked.Op {
	case "member_look":
		return look(m)
	case "member_commit":
		return nil, m.client.CommitUncommittedOffsets(ctx)
	case "member_leave":
		delete(members, asked.Member)
		m.stop()
		<-m.polled
		m.client.Close() // leaves the group
		return nil, nil
	}
	return nil, fmt.Errorf("%s is not known", asked.Op)
}
