#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/base/net/connection_acceptor.h"
#include "lockstep/runtime/base/net/descriptor.h"
#include "lockstep/runtime/base/net/message_authentication.h"
#include "lockstep/runtime/base/net/stream_socket.h"
#include "lockstep/runtime/base/net/tls_session.h"
#include "lockstep/runtime/exchange/exchange_link.h"
#include "lockstep/runtime/exchange/shared_memory_link.h"

namespace lockstep {

/// How the other ranks reach a rank.
struct LinkAddress {
  std::string host;  ///< address or name
  int port = 0;
  /// Name of the rank's Unix socket, which only processes of the same machine can reach. Empty if it has
  /// none.
  std::string local_name{};
};

/// Makes links between the processes of a job: through shared memory between two on one machine, and
/// otherwise over TCP, which is encrypted. Of two ranks, the higher one connects to the lower one.
/// Connections of others, who do not know the job's token, are dropped.
///
/// Thread-safe.
class LinkHub {
 public:
  using Clock = std::chrono::steady_clock;
  struct Options {
    int rank = 0;
    JobToken token;
    uint64_t generation = 0;  ///< of the job's start; the same on all ranks
    std::string host;         ///< the only address to listen on
    bool uses_shared_memory = true;
    bool encrypts = true;                          ///< links over TCP; the same on all ranks
    size_t shared_memory_bytes = size_t{1} << 20;  ///< for each direction of a link
    /// Called if a link does without shared memory because the system has run out. May be empty.
    std::function<void(const std::string& message)> log{};
  };

  /// Listens on a port of the system's choice. Throws ClusterError naming the host.
  explicit LinkHub(Options options);
  /// Ends waiting calls of connect(). Links stay open.
  ~LinkHub();
  LinkHub(const LinkHub&) = delete;
  LinkHub& operator=(const LinkHub&) = delete;

  /// Returns this rank's address, to be told to the others.
  const LinkAddress& address() const { return address_; }
  /// Sets all ranks' addresses, before connect() is called.
  void set_peers(std::vector<LinkAddress> peers);

  /// Returns a new link to `peer`. A lower rank blocks until `peer` calls this with the same channel; a
  /// higher one only until the peer's hub has answered. Throws std::system_error: timed_out at the deadline,
  /// operation_canceled after interrupt(), permission_denied if the peer has another token, belongs to
  /// another start or has ended its part, or the system's error.
  std::unique_ptr<ExchangeLink> connect(int peer, uint32_t channel, Clock::time_point deadline);

  /// Ends connect(), now and in future. Does not block or throw.
  void interrupt() noexcept;

  /// Returns how many connections were dropped because they did not know the token, or spoke otherwise.
  uint64_t num_rejected() const { return acceptor_->num_rejected(); }

 private:
  /// A connection of a rank for which connect() has not been called yet.
  struct Accepted {
    Descriptor socket;
    std::unique_ptr<TlsSession> session{};  // if the connection is encrypted
    bool has_shared_memory = false;
  };

  std::unique_ptr<ExchangeLink> call(int peer, uint32_t channel, Clock::time_point deadline);
  std::unique_ptr<ExchangeLink> await(int peer, uint32_t channel, Clock::time_point deadline);
  std::optional<SharedMemoryLink::Memory> allocate_for(int peer) const;
  StreamSocket connect_by_tcp(const LinkAddress& address, Clock::time_point deadline) const;
  std::unique_ptr<ExchangeLink> call_encrypted(StreamSocket socket, int peer, uint32_t channel,
                                               Clock::time_point deadline) const;
  void wait_for_peer(int socket, short event, Clock::time_point deadline) const;
  ConnectionAcceptor::Begin begin_encrypted();
  ConnectionAcceptor::Begin begin_plain(bool is_local);
  void accept(int peer, uint32_t channel, Accepted accepted);

  const Options options_;
  LinkAddress address_;
  const Descriptor interruption_;  // an eventfd
  std::atomic<bool> is_interrupted_{false};
  Mutex mutex_;
  ConditionVariable changed_;
  std::vector<LinkAddress> peers_ LOCKSTEP_GUARDED_BY(mutex_);
  std::map<std::pair<int, uint32_t>, Accepted> accepted_ LOCKSTEP_GUARDED_BY(mutex_);
  std::optional<ConnectionAcceptor> acceptor_;  // ends first
};

}  // namespace lockstep
