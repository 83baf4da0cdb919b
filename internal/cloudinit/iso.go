package cloudinit

import (
	"encoding/binary"
	"fmt"
)

// sector is the size of a logical block of an ISO 9660 image in bytes.
const sector = 2048

// The sectors of an image: the first 16 are the system's, the rest is ours to lay out.
const (
	volumeSector     = 16
	terminatorSector = 17
	pathTableSector  = 18 // little-endian, the big-endian twin follows
	rootSector       = 20
	firstFileSector  = 21
)

// isoFile is a file in the root directory of an image.
type isoFile struct {
	name    string
	content []byte
}

// isoImage makes an ISO 9660 image labelled cidata, SeedSize long, with files in the root directory, which come in
// ascending order of their names (ECMA-119, 4th edition; the numbers in comments are its sections).
//
// It is written here, since the libraries for it put the files on a disk first, where a crash would leave them.
//
// Names are recorded in lower case, which the standard does not allow for them and readers, Linux among them, take.
func isoImage(files []isoFile) ([]byte, error) {
	image := make([]byte, SeedSize)
	at := func(n int) []byte { return image[n*sector:][:sector] }

	root := directoryRecord("\x00", rootSector, sector, true)
	directory := append([]byte{}, root...)
	directory = append(directory, directoryRecord("\x01", rootSector, sector, true)...)
	next := firstFileSector
	for _, f := range files {
		if next*sector+len(f.content) > SeedSize {
			return nil, fmt.Errorf("%s does not fit into an image of %d bytes", f.name, SeedSize)
		}
		copy(image[next*sector:], f.content)
		directory = append(directory, directoryRecord(f.name+";1", next, len(f.content), false)...)
		next += (len(f.content) + sector - 1) / sector
	}
	if len(directory) > sector {
		return nil, fmt.Errorf("%d names do not fit into one directory", len(files))
	}
	copy(at(rootSector), directory)

	// The path table has one record, the root's (9.4).
	const pathTableSize = 10
	little, big := at(pathTableSector), at(pathTableSector+1)
	little[0], big[0] = 1, 1
	binary.LittleEndian.PutUint32(little[2:], rootSector)
	binary.BigEndian.PutUint32(big[2:], rootSector)
	binary.LittleEndian.PutUint16(little[6:], 1)
	binary.BigEndian.PutUint16(big[6:], 1)

	// The primary volume descriptor (8.4).
	v := at(volumeSector)
	v[0] = 1
	copy(v[1:], "CD001\x01")
	fill(v[8:40], "")
	fill(v[40:72], "cidata")
	both32(v[80:], SeedSize/sector)
	both16(v[120:], 1)
	both16(v[124:], 1)
	both16(v[128:], sector)
	both32(v[132:], pathTableSize)
	binary.LittleEndian.PutUint32(v[140:], pathTableSector)
	binary.BigEndian.PutUint32(v[148:], pathTableSector+1)
	copy(v[156:], root)
	fill(v[190:813], "")
	for _, date := range []int{813, 830, 847, 864} {
		copy(v[date:], "0000000000000000") // not specified (8.4.26.1)
	}
	v[881] = 1

	// Its end (8.3).
	t := at(terminatorSector)
	t[0] = 255
	copy(t[1:], "CD001\x01")
	return image, nil
}

// directoryRecord describes a file or directory (9.1). Its date is always the first day of 1980.
func directoryRecord(id string, extent, length int, directory bool) []byte {
	r := make([]byte, 33+len(id)+(len(id)+1)%2)
	r[0] = byte(len(r)) //nolint:gosec // names are ours, and short
	both32(r[2:], extent)
	both32(r[10:], length)
	copy(r[18:], []byte{80, 1, 1})
	if directory {
		r[25] = 2
	}
	both16(r[28:], 1)
	r[32] = byte(len(id)) //nolint:gosec // as above
	copy(r[33:], id)
	return r
}

// both16 and both32 record a number in both byte orders (7.2.3, 7.3.3).
func both16(b []byte, n uint16) {
	binary.LittleEndian.PutUint16(b, n)
	binary.BigEndian.PutUint16(b[2:], n)
}

func both32(b []byte, n int) {
	binary.LittleEndian.PutUint32(b, uint32(n))  //nolint:gosec // below the size of the image
	binary.BigEndian.PutUint32(b[4:], uint32(n)) //nolint:gosec // below the size of the image
}

// fill writes a text and pads it with spaces.
func fill(b []byte, s string) {
	for i := copy(b, s); i < len(b); i++ {
		b[i] = ' '
	}
}
