#pragma once

#include <cstdint>
#include <string>

#include "lockstep/runtime/base/net/message_authentication.h"
#include "lockstep/runtime/base/net/stream_socket.h"

namespace lockstep {

/// How a connection to a parameter server begins: each end proves to the other that it knows the job's token,
/// which does not travel, by the HMAC of what the other has just made up (so that what was recorded proves
/// nothing). Until then either end reads a few dozen bytes and no more, whoever the other is. What follows is
/// neither encrypted nor tagged.

/// The job's token from its text; where that is empty, one that everybody knows.
JobToken job_token_of(const std::string& text);

/// The server's part. False where the client has another token, which it is told. Throws InvalidArgument for
/// a client that does not speak this protocol, and as StreamSocket.
bool admit_client(StreamSocket& socket, const JobToken& token, uint64_t max_message_bytes,
                  StreamSocket::Clock::time_point deadline);

/// The client's part: returns how many bytes the server takes in one message. Throws ClusterError for another
/// token and for what is no parameter server, and as StreamSocket.
uint64_t meet_server(StreamSocket& socket, const JobToken& token, StreamSocket::Clock::time_point deadline);

}  // namespace lockstep
