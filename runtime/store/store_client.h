#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "lockstep/runtime/base/mutex.h"
#include "lockstep/runtime/base/net/descriptor.h"
#include "lockstep/runtime/base/net/message_authentication.h"
#include "lockstep/runtime/base/net/stream_socket.h"
#include "lockstep/runtime/base/net/tls_session.h"
#include "lockstep/runtime/store/store_message.h"

namespace lockstep {

struct StoreClientOptions {
  std::string host;
  int port = 0;
  JobToken token;
  std::string name;         ///< this process's task in the job, such as "worker 1"
  uint64_t generation = 0;  ///< of the job's start
  /// How long to wait for a server that is not listening yet, belongs to another start of the job, or does
  /// not answer.
  std::chrono::milliseconds connect_timeout{60'000};
};

struct StoreCallOptions {
  std::chrono::milliseconds timeout{10'000};
  bool is_interruptible = false;  ///< ends once interrupt() is called
};

/// An encrypted connection to the job's store. Many threads may call it at once: a call that waits for a key
/// does not keep others waiting. See StoreTable for what the calls do.
///
/// All calls block until the server has answered. They throw std::system_error: timed_out after the timeout,
/// operation_canceled after interrupt(), not_connected after close(), connection_reset and others if the
/// connection is lost; ClusterError if the server refuses the request because of a limit; and InvalidArgument
/// if the request is larger than kMaxStoreMessageBytes.
class StoreClient {
 public:
  /// A timeout for calls that wait until they are ended.
  static constexpr std::chrono::milliseconds kNoTimeout = std::chrono::hours(24 * 365);

  /// Connects, and blocks until the server has accepted. May ask a name server if the host is a name. Throws
  /// HandshakeError if the server has another token or is another program, and std::system_error with what
  /// happened last if nobody has accepted within the timeout.
  explicit StoreClient(const StoreClientOptions& options);
  /// Calls close().
  ~StoreClient();
  StoreClient(const StoreClient&) = delete;
  StoreClient& operator=(const StoreClient&) = delete;

  void set(const std::vector<std::string>& keys, const std::vector<std::string>& values,
           const StoreCallOptions& options = {});
  void set(const std::string& key, const std::string& value) {
    set(std::vector<std::string>{key}, std::vector<std::string>{value});
  }
  /// Returns the values once all keys exist. Returns nullopt once a key of `unless` does, if that is first.
  std::optional<std::vector<std::string>> get(const std::vector<std::string>& keys,
                                              const std::vector<std::string>& unless,
                                              const StoreCallOptions& options);
  /// Returns whether all keys exist.
  bool check(const std::vector<std::string>& keys, const StoreCallOptions& options = {});
  int64_t add(const std::string& key, int64_t number, const StoreCallOptions& options = {});
  void append(const std::string& key, const std::string& value, const StoreCallOptions& options = {});
  std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired,
                          const StoreCallOptions& options = {});
  bool erase(const std::string& key, const StoreCallOptions& options = {});
  int64_t num_keys(const StoreCallOptions& options = {});

  /// Sends a get() and returns its number, for poll_get(). Does not block.
  uint64_t begin_get(const std::vector<std::string>& keys);
  /// Returns the values if they have come; does not block. Throws like the calls if the connection is lost.
  std::optional<std::vector<std::string>> poll_get(uint64_t number);
  /// Forgets a get() that begin_get() has sent. Does not block or throw.
  void end_get(uint64_t number) noexcept;

  /// Ends interruptible calls, now and in future. Does not block or throw.
  void interrupt() noexcept;
  /// Closes the connection, which ends all calls, now and in future. Blocks only until the thread has
  /// noticed. Does not throw. Only one thread may call it.
  void close() noexcept;

 private:
  void connect(const StoreClientOptions& options);
  StoreReply call(StoreRequest request, const StoreCallOptions& options);
  uint64_t send(StoreRequest request) LOCKSTEP_REQUIRES(mutex_);
  void cancel(uint64_t id) LOCKSTEP_REQUIRES(mutex_);
  std::optional<StoreReply> take_reply(uint64_t id) LOCKSTEP_REQUIRES(mutex_);
  void serve();
  void exchange();
  bool send_queued();
  bool receive();
  void await_welcome(StreamSocket::Clock::time_point deadline);

  std::optional<StreamSocket> socket_;
  std::unique_ptr<TlsSession> session_;  // used only by the thread, once it runs
  const Descriptor wake_up_;             // an eventfd
  StoreMessageReader in_;                // used only by the thread
  std::vector<uint8_t> out_;             // likewise
  size_t out_begin_ = 0;
  Mutex mutex_;
  ConditionVariable changed_;
  std::vector<uint8_t> queued_ LOCKSTEP_GUARDED_BY(mutex_);
  // Calls that wait, with the reply once it has come.
  std::map<uint64_t, std::optional<StoreReply>> calls_ LOCKSTEP_GUARDED_BY(mutex_);
  uint64_t next_id_ LOCKSTEP_GUARDED_BY(mutex_) = 1;
  std::error_code error_ LOCKSTEP_GUARDED_BY(mutex_);  // why the connection is lost
  bool is_interrupted_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  bool is_closed_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace lockstep
