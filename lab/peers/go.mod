module github.com/mongosonar/mongosonar/lab/peers

go 1.23

require (
	github.com/google/gopacket v1.1.19
	go.mongodb.org/mongo-driver/v2 v2.3.0
)

require (
	golang.org/x/net v0.0.0-20190620200207-3b0461eec859 // indirect
	golang.org/x/sys v0.0.0-20190412213103-97732733099d // indirect
)
