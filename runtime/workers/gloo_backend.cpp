// The only source that includes Gloo's headers. They are Debian's, which are older than the Gloo within
// LibTorch. Only functions that both versions share are called, and no Gloo object is made or laid out here.
#include "lockstep/runtime/workers/gloo_backend.h"

#include <gloo/context.h>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/runtime/base/internal/signal_guard.h"
#include "lockstep/runtime/base/mutex.h"

namespace gloo::transport::tcp {

// Debian's package lacks a header that this class's own header needs. The function is not virtual, and
// gloo::transport::Pair is the class's first base, so that a pointer to one is a pointer to the other.
class Pair {
 public:
  /// Fails everything that waits on the connection, with this message, and closes it.
  std::exception_ptr signalExceptionExternal(const std::string& message);
};

}  // namespace gloo::transport::tcp

namespace lockstep {
namespace {

/// Guards LibTorch's process-wide record of collectives, which is written without a lock when groups in
/// several threads launch at once.
Mutex& launch_mutex() {
  static Mutex mutex;
  return mutex;
}

class GlooBackend : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;

  c10::intrusive_ptr<c10d::Work> allreduce(std::vector<at::Tensor>& tensors,
                                           const c10d::AllreduceOptions& options) override {
    MutexLock lock(launch_mutex());
    return ProcessGroupGloo::allreduce(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> broadcast(std::vector<at::Tensor>& tensors,
                                           const c10d::BroadcastOptions& options) override {
    MutexLock lock(launch_mutex());
    return ProcessGroupGloo::broadcast(tensors, options);
  }
  c10::intrusive_ptr<c10d::Work> allgather(std::vector<std::vector<at::Tensor>>& outputs,
                                           std::vector<at::Tensor>& inputs,
                                           const c10d::AllgatherOptions& options) override {
    MutexLock lock(launch_mutex());
    return ProcessGroupGloo::allgather(outputs, inputs, options);
  }

  void abort() override {
    MutexLock lock(mutex_);
    if (std::exchange(is_aborted_, true)) return;
    for (const auto& context : contexts_) {
      for (int rank = 0; rank < getSize(); ++rank) {
        auto& pair = context->getPair(rank);
        if (rank == getRank() || !pair) continue;
        reinterpret_cast<gloo::transport::tcp::Pair*>(pair.get())
            ->signalExceptionExternal("aborted by this process");
      }
    }
  }

 private:
  Mutex mutex_;
  bool is_aborted_ LOCKSTEP_GUARDED_BY(mutex_) = false;
};

}  // namespace

c10::intrusive_ptr<c10d::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                    const GlooOptions& options) {
  const SignalGuard without_broken_pipes(SIGPIPE);
  auto gloo = c10d::ProcessGroupGloo::Options::create(options.timeout);
  gloo->threads = 1;  // collectives run one after another
  gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(options.address));
  return c10::make_intrusive<GlooBackend>(store, options.rank, options.size, gloo);
}

}  // namespace lockstep
