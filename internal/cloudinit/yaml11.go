package cloudinit

import (
	"regexp"
	"strconv"
	"time"
)

// kind is what a reader of YAML 1.1 sees in a scalar without quotes (https://yaml.org/type/). cloud-init's is one, PyYAML;
// the library here follows YAML 1.2 in part.
type kind int

const (
	isText kind = iota
	isNull
	isBool
	isNumber
	isTime
	// isBroken ends the reading of the whole document.
	isBroken
)

var (
	nullForm  = regexp.MustCompile(`^(~|null|Null|NULL|)$`)
	boolForm  = regexp.MustCompile(`^(yes|Yes|YES|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF)$`)
	intForm   = regexp.MustCompile(`^[-+]?(0b[01_]+|0[0-7_]+|0|[1-9][0-9_]*|0x[0-9a-fA-F_]+|[1-9][0-9_]*(:[0-5]?[0-9])+)$`)
	floatForm = regexp.MustCompile(
		`^([-+]?[0-9][0-9_]*\.[0-9_]*([eE][-+][0-9]+)?|\.[0-9_]+([eE][-+][0-9]+)?|[-+]?[0-9][0-9_]*(:[0-5]?[0-9])+\.[0-9_]*|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$`)
	dateForm = regexp.MustCompile(`^(\d{4})-(\d\d)-(\d\d)$`)
	timeForm = regexp.MustCompile(`^(\d{4})-(\d\d?)-(\d\d?)(?:[Tt]|[ \t]+)(\d\d?):(\d\d):(\d\d)(?:\.\d*)?(?:[ \t]*(?:Z|[-+](\d\d?)(?::(\d\d))?))?$`)

	// noDigits are numbers without a digit.
	noDigits = regexp.MustCompile(`^([-+]?0[bx]_+|\._+([eE][-+][0-9]+)?)$`)
)

// maxDigits is how long a number may be: Python refuses to read decimal ones of more than 4300 digits.
const maxDigits = 4000

// kindOf tells what a scalar without quotes is.
func kindOf(plain string) kind {
	switch {
	case plain == "=", plain == "<<":
		return isBroken // They have a type of their own, which nothing reads as a value.
	case nullForm.MatchString(plain):
		return isNull
	case boolForm.MatchString(plain):
		return isBool
	case intForm.MatchString(plain), floatForm.MatchString(plain):
		if noDigits.MatchString(plain) || len(plain) > maxDigits {
			return isBroken
		}
		return isNumber
	}
	m := dateForm.FindStringSubmatch(plain)
	if m == nil {
		if m = timeForm.FindStringSubmatch(plain); m == nil {
			return isText
		}
	}
	if !onCalendar(m[1:]) {
		return isBroken
	}
	return isTime
}

// onCalendar reports whether there is such a time: year, month, day, hour, minute, second, and hours and minutes of the
// distance from UTC. What is missing or empty is zero.
func onCalendar(parts []string) bool {
	var n [8]int
	for i, p := range parts {
		n[i], _ = strconv.Atoi(p) // A few digits, or nothing.
	}
	t := time.Date(n[0], time.Month(n[1]), n[2], n[3], n[4], n[5], 0, time.UTC)
	return n[0] > 0 && t.Year() == n[0] && int(t.Month()) == n[1] && t.Day() == n[2] &&
		t.Hour() == n[3] && t.Minute() == n[4] && t.Second() == n[5] && n[6]*60+n[7] < 24*60
}
