#include "lockstep/runtime/workers/agent_store.h"

#include <c10/util/Exception.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <span>
#include <vector>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/base/internal/call_with_timeout.h"
#include "lockstep/runtime/base/internal/little_endian.h"
#include "lockstep/runtime/base/internal/signal_guard.h"
#include "lockstep/runtime/base/net/address_lookup.h"
#include "lockstep/runtime/base/net/name_server_guard.h"

namespace lockstep {
namespace {

// How long beyond the timeout to wait for an agent that does not answer: its clients have no timeout for
// that.
constexpr std::chrono::milliseconds kSlack{1000};

std::string key_of(const AgentStoreOptions& options) {
  return c10::str("lockstep/", options.restart_count, "/store");
}

/// Returns the bytes that the tag authenticates.
std::vector<uint8_t> tagged_bytes(const AgentStoreOptions& options, const StoreAddress& address) {
  LittleEndianWriter writer;
  writer.write_text(key_of(options));
  writer.write_text(address.host);
  writer.write(address.port);
  return writer.take();
}

std::vector<uint8_t> encode(const AgentStoreOptions& options, const StoreAddress& address) {
  LittleEndianWriter writer;
  writer.write_text(address.host);
  writer.write(address.port);
  for (const uint8_t byte : options.token.value().tag(tagged_bytes(options, address))) writer.write(byte);
  return writer.take();
}

/// Safe for untrusted bytes.
StoreAddress decode(const AgentStoreOptions& options, const std::vector<uint8_t>& bytes) {
  try {
    LittleEndianReader reader(bytes);
    StoreAddress address{.host = reader.read_text()};
    address.port = reader.read<int>();
    const auto tag = reader.next(reader.num_left());
    if (!options.token || options.token->verify(tagged_bytes(options, address), tag)) return address;
  } catch (const InvalidArgument&) {  // too short
  }
  throw HandshakeError(
      HandshakeError::Reason::kToken,
      "expected an address under the job's token in the store of torchrun's agent, but got another");
}

/// Calls `act` with a client of the agent's store.
template <typename Act>
auto with_agent(const AgentStoreOptions& options, const Act& act) {
  const auto work = [options, act] {
    const SignalGuard without_broken_pipes(SIGPIPE);
    const auto address = single_address_of(options.host, options.port);
    // For its log, the client asks a name server for the address's name. One that does not answer would delay
    // it beyond the timeout.
    std::optional<NameServerGuard> without_name_server;
    if (address) without_name_server.emplace();
    c10d::TCPStoreOptions store;
    store.port = static_cast<uint16_t>(options.port);
    store.waitWorkers = false;
    store.timeout = options.timeout;
    return act(*c10::make_intrusive<c10d::TCPStore>(address.value_or(options.host), store));
  };
  auto result = call_with_timeout(2 * options.timeout + kSlack, work);
  TORCH_CHECK_WITH(DistStoreError, result.has_value(), "it does not answer");
  return std::move(*result);
}

}  // namespace

void tell_agent(const AgentStoreOptions& options, const StoreAddress& address) {
  with_agent(options, [key = key_of(options), value = encode(options, address)](c10d::Store& store) {
    store.set(key, value);
    return true;
  });
}

StoreAddress ask_agent(const AgentStoreOptions& options) {
  return decode(options,
                with_agent(options, [key = key_of(options)](c10d::Store& store) { return store.get(key); }));
}

}  // namespace lockstep
