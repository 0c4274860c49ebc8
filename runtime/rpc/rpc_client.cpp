#include "lockstep/runtime/rpc/rpc_client.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <array>
#include <limits>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/little_endian.h"
#include "lockstep/runtime/base/net/address_lookup.h"
#include "lockstep/runtime/rpc/rpc_error.h"
#include "lockstep/runtime/rpc/rpc_format.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

std::string text_of(const std::system_error& error, milliseconds timeout) {
  if (error.code() == std::errc::timed_out)
    return c10::str("no answer within ", std::chrono::duration<double>(timeout).count(), " s");
  return error.code().message();
}

}  // namespace

RpcClient::RpcClient(const RpcClientOptions& options)
    : name_(c10::str(options.name, " (", endpoint_text(options.host, options.port), ")")),
      call_timeout_(options.call_timeout),
      socket_(connect(options)) {}

SecureSocket RpcClient::connect(const RpcClientOptions& options) {
  const auto token = JobToken::from_text(options.token);
  const ChannelIdentity identity{
      .purpose = kRpcPurpose, .client = options.task, .server = options.server_task};
  const auto deadline = StreamSocket::Clock::now() + options.connect_timeout;
  std::string reason;
  for (milliseconds pause{10};; pause = std::min(pause * 2, milliseconds(500))) {
    try {
      SecureSocket socket(StreamSocket::connect(options.host, options.port, deadline));
      socket.meet(token, identity, deadline);
      std::array<uint8_t, sizeof(max_message_bytes_)> limit{};
      if (!socket.receive({limit}, deadline))
        throw std::system_error(std::make_error_code(std::errc::connection_reset), "handshake");
      max_message_bytes_ = LittleEndianReader(limit).read<uint64_t>();
      return socket;
    } catch (const ClusterError& error) {
      throw ClusterError(c10::str(name_, ": ", error.what()));
    } catch (const std::system_error& error) {
      // If the time ends within an attempt, the answer to an earlier one says more.
      if (reason.empty() || error.code() != std::errc::timed_out)
        reason = text_of(error, options.connect_timeout);
      // The server may be about to start, or to restart.
      if (StreamSocket::Clock::now() + pause >= deadline)
        throw PeerLost(c10::str(name_, ": expected it to answer within ",
                                std::chrono::duration<double>(options.connect_timeout).count(),
                                " s, but got: ", reason));
    }
    std::this_thread::sleep_for(pause);
  }
}

void RpcClient::fail(const std::string& what) {
  is_lost_ = true;
  socket_.shut();  // replies that still arrive belong to no call
  throw PeerLost(c10::str(name_, ": ", what));
}

RpcMessage RpcClient::call(RpcMessage request) {
  send(std::move(request));
  return receive();
}

/// Returns the result of `work`. After any failure the connection is lost: later replies belong to no call.
template <typename Work>
auto RpcClient::attempt(const Work& work) {
  if (is_lost_) fail("the connection was lost before");
  try {
    return work();
  } catch (const std::system_error& error) {
    fail(text_of(error, call_timeout_));
  } catch (const InvalidArgument& error) {
    fail(error.what());
  } catch (...) {
    is_lost_ = true;  // such as when memory runs out
    throw;
  }
}

IncomingMessage RpcClient::next_reply() {
  const ReceiveLimits limits{.max_bytes = std::numeric_limits<int64_t>::max(),
                             .begin = StreamSocket::Clock::now() + call_timeout_,
                             .timeout = call_timeout_};
  IncomingMessage incoming;
  if (!receive_message(socket_, limits, incoming)) fail("it has closed the connection");
  if (incoming.kind == RpcKind::kRequest) fail("expected a reply, but got a request");
  return incoming;
}

void RpcClient::send(RpcMessage request) {
  const OutgoingMessage outgoing(RpcKind::kRequest, std::move(request));
  if (outgoing.num_bytes() > max_message_bytes_)
    throw InvalidArgument(c10::str(name_, ": expected a message of ", max_message_bytes_,
                                   " bytes or less, but got one of ", outgoing.num_bytes()));
  attempt([&] { outgoing.send(socket_, call_timeout_, [&] { received_.push_back(next_reply()); }); });
  ++num_outstanding_;
}

RpcMessage RpcClient::receive() {
  if (num_outstanding_ == 0) throw InvalidArgument(name_ + ": expected a request before a reply");
  auto incoming = attempt([&] {
    if (received_.empty()) return next_reply();
    auto first = std::move(received_.front());
    received_.pop_front();
    return first;
  });
  --num_outstanding_;
  if (incoming.kind == RpcKind::kError) throw_error(incoming.message, name_ + ": ");
  return std::move(incoming.message);
}

}  // namespace lockstep
