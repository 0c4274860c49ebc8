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
  /// Connections that have not proved the token are closed after this time.
  std::chrono::milliseconds handshake_timeout{10'000};
  /// No more of them are accepted at once. If others wait, those that are slow leave early.
  int max_strangers = 64;
};

/// The store of a job, in which its processes find each other: keys and values over encrypted connections.
/// One thread serves all clients. Nothing that a connection sends is read before it has proved that it knows
/// the job's token and belongs to this start of the job.
class StoreServer {
 public:
  /// Starts listening. Throws ClusterError if the system refuses.
  StoreServer(TcpListener listener, const StoreServerOptions& options);
  /// Closes all connections.
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  int port() const { return listener_.port(); }

  /// Blocks until no more than one client is connected, the server's own process, for at most `limit`.
  void wait_for_departures(std::chrono::milliseconds limit);

  /// Returns the number of connections that were closed because they did not prove the token in time, or
  /// spoke otherwise.
  uint64_t num_rejected() const { return num_rejected_; }
  /// Returns how many of them had another token.
  uint64_t num_wrong_tokens() const { return num_wrong_tokens_; }
  int num_clients() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct Connection {
    Descriptor socket;
    std::unique_ptr<TlsSession> session;
    Clock::time_point begin;  // of the handshake
    bool is_admitted = false;
    bool is_paused = false;  // nothing is received before more is sent
    uint32_t events = 0;     // that the thread waits for
    StoreMessageReader in{};
    std::vector<uint8_t> out{};
    size_t out_begin = 0;  // of the bytes that the session has not taken

    size_t num_unsent() const { return out.size() - out_begin; }
  };

  void serve();
  void accept_strangers();
  void add_stranger(Descriptor socket);
  void end_strangers(Clock::time_point begun_before, size_t max_count);
  void handle_events(uint64_t id);
  bool shake_hands(uint64_t id, Connection& connection);
  bool receive(uint64_t id, Connection& connection);
  void flush(Connection& connection);
  void send_answers();
  void watch(int descriptor, uint64_t id, uint32_t events);
  void reject(uint64_t id);
  void remove(uint64_t id);
  void answer(uint64_t client, const StoreReply& reply);

  const StoreServerOptions options_;
  TcpListener listener_;
  const Descriptor epoll_;
  const Descriptor interruption_;  // an eventfd
  std::atomic<bool> is_closing_{false};
  std::atomic<uint64_t> num_rejected_{0};
  std::atomic<uint64_t> num_wrong_tokens_{0};
  mutable Mutex mutex_;
  ConditionVariable changed_;
  int num_clients_ LOCKSTEP_GUARDED_BY(mutex_) = 0;
  // Used only by the thread.
  std::unordered_map<uint64_t, Connection> connections_;
  std::vector<uint64_t> strangers_;  // connections that have not proved the token, oldest first
  std::vector<uint64_t> answered_;   // connections with answers to send
  bool is_full_ = false;             // others wait to become strangers
  uint64_t next_id_ = 2;             // the first ones are other descriptors'
  StoreTable table_;
  std::thread thread_;
};

}  // namespace lockstep
