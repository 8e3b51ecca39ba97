"""Every byte layout of the files that RocketMQ and TandemQ keep on disk, each defined once."""
