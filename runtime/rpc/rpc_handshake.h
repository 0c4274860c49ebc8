#pragma once

#include <cstdint>
#include <string>

#include "lockstep/runtime/base/net/message_authentication.h"
#include "lockstep/runtime/base/net/stream_socket.h"

namespace lockstep {

/// How a connection to a parameter server begins: each end proves that it knows the job's token, without
/// sending it, by the HMAC of random bytes that the other end has just made, so recorded messages prove
/// nothing. Until then, each end reads only a few dozen bytes. Messages after the handshake are neither
/// encrypted nor tagged.

/// Makes the job's token from its text. For an empty text, returns a token that everybody knows.
JobToken job_token_of(const std::string& text);

/// Runs the server's side. Returns false, after telling the client, if the client has another token. Throws
/// InvalidArgument if the client does not speak this protocol, and what StreamSocket throws.
bool admit_client(StreamSocket& socket, const JobToken& token, uint64_t max_message_bytes,
                  StreamSocket::Clock::time_point deadline);

/// Runs the client's side and returns how many bytes the server accepts in one message. Throws ClusterError
/// if the token differs or the other end is not a parameter server, and what StreamSocket throws.
uint64_t meet_server(StreamSocket& socket, const JobToken& token, StreamSocket::Clock::time_point deadline);

}  // namespace lockstep
