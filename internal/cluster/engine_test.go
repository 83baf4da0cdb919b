package cluster

import "testing"

// A node is tried twice, so the default timeouts of what makes nodes must hold its waits twice.
func TestDefaultTimeoutsHoldTheWaitsInside(t *testing.T) {
	for name, timeout := range map[string]int64{"create": int64(DefaultCreateTimeout), "update": int64(DefaultUpdateTimeout)} {
		w := WaitsWithin(DefaultCreateTimeout)
		if sum := int64(w.Agent+w.Bootstrap+w.Ready) * attempts; sum > timeout {
			t.Errorf("%s: the waits of a node last %d, the timeout is %d", name, sum, timeout)
		}
	}
	if w := WaitsWithin(DefaultDeleteTimeout); w.Stop <= 0 || w.Stop >= DefaultDeleteTimeout {
		t.Errorf("delete: the grace of %s does not fit into %s", w.Stop, DefaultDeleteTimeout)
	}
	if apiReadTimeout+observeTimeout >= DefaultReadTimeout {
		t.Errorf("read: the waits inside do not fit into %s", DefaultReadTimeout)
	}
}

func TestShorterTimeoutsShortenTheWaits(t *testing.T) {
	whole, half := WaitsWithin(DefaultCreateTimeout), WaitsWithin(DefaultCreateTimeout/2)
	if half.Agent*2 != whole.Agent || half.Bootstrap*2 != whole.Bootstrap || half.Ready*2 != whole.Ready {
		t.Errorf("waits of half the timeout are %+v, of the whole %+v", half, whole)
	}
}
