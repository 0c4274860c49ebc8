#include "lockstep/strategies/closure_worker.h"

#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "lockstep/runtime/errors.h"
#include "lockstep/runtime/message_authentication.h"
#include "lockstep/runtime/mutex.h"
#include "lockstep/strategies/closure_messages.h"

namespace lockstep {
namespace {

/// Tells the coordinator that this worker lives, over a connection of its own, while another one waits for
/// answers and the worker computes.
class Beats {
 public:
  Beats(const ClosureWorkerOptions& options, uint64_t session)
      : options_(options), session_(session), thread_([this] { run(); }) {}
  ~Beats() {
    {
      MutexLock lock(mutex_);
      is_over_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }
  Beats(const Beats&) = delete;
  Beats& operator=(const Beats&) = delete;

 private:
  void run() {
    std::optional<RpcClient> client;
    auto coordinator = options_.coordinator;
    coordinator.connect_timeout = std::chrono::seconds(1);  // who ends is not to wait for longer
    coordinator.call_timeout = std::chrono::seconds(1);
    MutexLock lock(mutex_);
    while (!is_over_) {
      lock.unlock();
      try {
        if (!client) client.emplace(coordinator);
        client->call(encode_worker_request(WorkerBeat{session_}));
      } catch (const ClusterError&) {  // the thread that asks for closures tells of it
        client.reset();
      }
      lock.lock();
      if (!is_over_) changed_.wait_until(mutex_, std::chrono::steady_clock::now() + options_.beat_interval);
    }
  }

  const ClosureWorkerOptions& options_;
  const uint64_t session_;
  Mutex mutex_;
  ConditionVariable changed_;
  bool is_over_ LOCKSTEP_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

uint64_t new_session() {
  uint64_t session = 0;
  const auto bytes = random_bytes();
  std::memcpy(&session, bytes.data(), sizeof(session));
  return session;
}

}  // namespace

void serve_closures(const ClosureWorkerOptions& options,
                    const std::function<ClosureValues(uint64_t closure, const std::string& function,
                                                      const ClosureValues& arguments)>& run) {
  const uint64_t session = new_session();
  std::optional<RpcClient> client(options.coordinator);
  const Beats beats(options, session);
  AskForClosure request{.session = session, .worker = options.name, .ended = std::nullopt};
  for (;;) {
    GivenClosure given;
    try {
      if (!client) client.emplace(options.coordinator);
      given = decode_given(client->call(encode_worker_request(request)));
    } catch (const PeerLost&) {
      if (!client) throw;  // it has not come back in time
      client.reset();
      continue;
    } catch (const InvalidArgument&) {
      // What the closure returned cannot be sent.
      if (!client || !request.ended || request.ended->error) throw;
      request.ended->error = std::current_exception();
      continue;
    }
    request.ended.reset();
    if (given.kind == GivenClosure::Kind::kEnd) return;
    if (given.kind == GivenClosure::Kind::kNone) continue;
    auto& ended = request.ended.emplace();
    ended.closure = given.closure;
    try {
      ended.results = run(given.closure, given.function, given.arguments);
    } catch (...) {
      ended.error = std::current_exception();
    }
  }
}

}  // namespace lockstep
