// What does Go itself make of a duration?
//
// Reads JSON strings, one a line, and answers each with a line of JSON: the nanoseconds and Go's way to print them,
// or null when time.ParseDuration refuses the text.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"os"
	"time"
)

type answer struct {
	Nanos int64  `json:"nanos"`
	Text  string `json:"text"`
}

func main() {
	questions := json.NewDecoder(bufio.NewReader(os.Stdin))
	out := bufio.NewWriter(os.Stdout)
	answers := json.NewEncoder(out)
	for questions.More() {
		var text string
		if err := questions.Decode(&text); err != nil {
			log.Fatal(err)
		}
		if err := answers.Encode(parse(text)); err != nil {
			log.Fatal(err)
		}
	}
	if err := out.Flush(); err != nil {
		log.Fatal(err)
	}
}

func parse(text string) *answer {
	duration, err := time.ParseDuration(text)
	if err != nil {
		return nil
	}
	return &answer{Nanos: int64(duration), Text: duration.String()}
}
