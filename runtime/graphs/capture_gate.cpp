#include "lockstep/runtime/graphs/capture_gate.h"

#include <unordered_map>
#include <utility>

#include "lockstep/runtime/base/mutex.h"

namespace lockstep {
namespace {

/// The guards of this process. Default generators belong to the process, too.
class CaptureGate {
 public:
  /// Announces itself before it waits, so that new draws do not hold it up for ever.
  void enter_capture(c10::Device device) {
    MutexLock lock(mutex_);
    ++guards_[device].captures;
    while (guards_[device].draws > 0) changed_.wait(mutex_);
  }
  void leave_capture(c10::Device device) {
    MutexLock lock(mutex_);
    --guards_[device].captures;
    changed_.notify_all();
  }
  /// Takes all devices at once. If a thread held one and waited for another, it could block a capture that
  /// the awaited capture waits for.
  void enter_draws(const std::vector<c10::Device>& devices) {
    MutexLock lock(mutex_);
    while (is_captured(devices)) changed_.wait(mutex_);
    for (const auto device : devices) ++guards_[device].draws;
  }
  void leave_draws(const std::vector<c10::Device>& devices) {
    MutexLock lock(mutex_);
    for (const auto device : devices) --guards_[device].draws;
    changed_.notify_all();
  }

 private:
  struct Guards {
    int captures = 0;
    int draws = 0;
  };

  bool is_captured(const std::vector<c10::Device>& devices) LOCKSTEP_REQUIRES(mutex_) {
    for (const auto device : devices) {
      if (guards_[device].captures > 0) return true;
    }
    return false;
  }

  Mutex mutex_;
  ConditionVariable changed_;
  std::unordered_map<c10::Device, Guards> guards_ LOCKSTEP_GUARDED_BY(mutex_);
};

CaptureGate& gate() {
  static auto* const gate = new CaptureGate;  // background threads may outlive main
  return *gate;
}

}  // namespace

CaptureGuard::CaptureGuard(c10::Device device) : device_(device) {
  gate().enter_capture(device_);
}

CaptureGuard::~CaptureGuard() {
  gate().leave_capture(device_);
}

UncapturedGuard::UncapturedGuard(std::vector<c10::Device> devices) : devices_(std::move(devices)) {
  gate().enter_draws(devices_);
}

UncapturedGuard::~UncapturedGuard() {
  gate().leave_draws(devices_);
}

}  // namespace lockstep
