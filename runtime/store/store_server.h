#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <unordered_map>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/base/net/connection_acceptor.h"
#include "lockstep/runtime/base/net/descriptor.h"
#include "lockstep/runtime/base/net/message_authentication.h"
#include "lockstep/runtime/base/net/tcp_listener.h"
#include "lockstep/runtime/base/net/tls_session.h"
#include "lockstep/runtime/store/store_message.h"
#include "lockstep/runtime/store/store_table.h"

namespace lockstep {

struct StoreServerOptions {
  JobToken token;
  uint64_t generation = 0;  ///< of the job's start; clients of another one are refused
  /// Gives the token to those that may get it; nullptr if they know it from elsewhere.
  std::shared_ptr<const SecretGrant> grant{};
  StoreTable::Limits limits{};
  PendingConnectionLimits pending{};  ///< for connections that have not proved the token
};

/// The store of a job, in which its processes find each other: keys and values over encrypted connections.
/// One thread serves all clients, and another one admits them. Nothing that a connection sends is read before
/// it has proved that it knows the job's token and belongs to this start of the job.
class StoreServer {
 public:
  /// Starts listening. Throws ClusterError if the system refuses.
  StoreServer(TcpListener listener, const StoreServerOptions& options);
  /// Closes all connections.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  int port() const { return port_; }

  /// Blocks until no more than one client is connected, the server's own process, for at most `limit`.
  void wait_for_departures(std::chrono::milliseconds limit);

  /// Returns the number of connections that were closed because they did not prove the token in time, or
  /// spoke otherwise.
  uint64_t num_rejected() const { return acceptor_->num_rejected() + num_rejected_; }
  /// Returns how many of them had another token.
  uint64_t num_wrong_tokens() const { return acceptor_->num_wrong_tokens(); }
  int num_clients() const;

 private:
  struct Connection {
    Descriptor socket;
    std::unique_ptr<TlsSession> session;
    bool is_paused = false;  // nothing is received before more is sent
    uint32_t events = 0;     // that the thread waits for
    StoreMessageReader in{};
    std::vector<uint8_t> out{};
    size_t out_begin = 0;  // of the bytes that the session has not taken

    size_t num_unsent() const { return out.size() - out_begin; }
  };

  void serve();
  void admit(AdmittedConnection connection);
  void add_clients();
  void add_client(uint64_t id, AdmittedConnection admitted);
  void handle_events(uint64_t id);
  bool receive(uint64_t id, Connection& connection);
  void flush(Connection& connection);
  void send_answers();
  void remove(uint64_t id);
  void answer(uint64_t client, const StoreReply& reply);

  const int port_;
  const Descriptor epoll_;
  const Descriptor interruption_;  // an eventfd
  std::atomic<bool> is_closing_{false};
  std::atomic<uint64_t> num_rejected_{0};  // clients that did not send messages
  mutable Mutex mutex_;
  ConditionVariable changed_;
  int num_clients_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  std::vector<AdmittedConnection> admitted_ LOCKSTEP_GUARDED_BY(mutex_);  // for the thread to serve
  // Used only by the thread.
  std::unordered_map<uint64_t, Connection> connections_;
  std::vector<uint64_t> answered_;  // connections with answers to send
  uint64_t next_id_ = 1;            // the first one is the interruption's
  StoreTable table_;
  std::thread thread_;
  std::optional<ConnectionAcceptor> acceptor_;  // ends first
};

}  // namespace lockstep
