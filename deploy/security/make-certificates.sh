#!/bin/sh
# make-certificates.sh DIR HOST…: an authority of your own, a certificate for each HOST (name or address), and one for
# clients, as PEM files in DIR. For tests and small installations; a company has its own authority.
#   ca.pem ca.key   server-HOST.pem server-HOST.key   client.pem client.key
set -eu
[ $# -ge 2 ] || { echo "usage: $0 DIR HOST…" >&2; exit 2; }
directory=$1
shift
mkdir -p "$directory"
cd "$directory"
umask 077
days=825

[ -f ca.key ] || openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -days 3650 \
    -subj "/CN=TandemQ test authority" -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=keyCertSign,cRLSign" 2>/dev/null

issue() { # NAME SUBJECT EXTENSIONS
    openssl req -newkey rsa:2048 -nodes -keyout "$1.key" -out "$1.csr" -subj "$2" 2>/dev/null
    printf '%s\n' "$3" > "$1.ext"
    openssl x509 -req -in "$1.csr" -CA ca.pem -CAkey ca.key -CAcreateserial -out "$1.pem" -days "$days" -extfile "$1.ext" 2>/dev/null
    rm -f "$1.csr" "$1.ext"
}

for host in "$@"; do
    case $host in
    *[!0-9.]*) name="DNS:$host" ;;
    *) name="IP:$host" ;;
    esac
    # A broker is a server to its clients and a client of name servers and of its master.
    issue "server-$host" "/CN=$host" "subjectAltName=$name
extendedKeyUsage=serverAuth,clientAuth"
done
issue client "/CN=client" "extendedKeyUsage=clientAuth"
chmod 644 ca.pem
echo "made: $(ls | tr '\n' ' ')"
