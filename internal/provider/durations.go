package provider

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/types"
)

// durationForm is that of a length of time within bounds. Records keep whole seconds.
func durationForm(attribute string, least, most time.Duration) form {
	rule := fmt.Sprintf(`a length of time from %s to %s, such as "90s", "15m" or "1h30m"`, durationText(least), durationText(most))
	return form{thing: attribute, rule: rule, check: func(s string) error {
		switch d, err := time.ParseDuration(s); {
		case err != nil, d < least, d > most:
			return errors.New("it has to be " + rule)
		case d%time.Second != 0:
			return errors.New("it has a part of a second; give whole seconds")
		}
		return nil
	}}
}

// secondsOf is a length of time in seconds, 0 where there is none.
func secondsOf(s types.String) int {
	d, err := time.ParseDuration(s.ValueString())
	if err != nil {
		return 0 // Its validator has told what is wrong with it.
	}
	return int(d / time.Second)
}

// durationValue renders seconds as a user would write them.
func durationValue(seconds int) types.String {
	return types.StringValue(durationText(time.Duration(seconds) * time.Second))
}

// durationText is a length of time without the units of which it has none.
func durationText(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
