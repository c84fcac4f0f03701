module github.com/mongosonar/mongosonar/lab/proxy

go 1.22

require (
	github.com/golang/snappy v1.0.0
	github.com/klauspost/compress v1.18.0
	go.mongodb.org/mongo-driver v1.16.0
)
