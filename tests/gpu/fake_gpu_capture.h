#pragma once

// Internal to the fake GPU: streams that note their work for a graph.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/tests/gpu/fake_gpu_memory.h"
#include "lockstep/tests/gpu/stream_order.h"

namespace lockstep::fake_gpu {

/// What CUDA says, after "CUDA error: ".
inline constexpr const char* kNotPermitted = "operation not permitted when stream is capturing";
inline constexpr const char* kPreviousError = "operation failed due to a previous error during capture";
inline constexpr const char* kIsolation = "dependency created on uncaptured work in another stream";
inline constexpr const char* kUnjoined = "capturing stream has unjoined work";
inline constexpr const char* kCapturedEvent =
    "operation not permitted on an event last recorded in a capturing stream";

/// An operator or a copy that every replay does again.
struct Work {
  std::string name;
  std::vector<StreamOrder::Range> reads;
  std::vector<StreamOrder::Range> writes;
  /// What it uses, which must still be there at a replay.
  std::vector<std::weak_ptr<const void>> memory;
  std::function<void()> compute;
  /// What the operator was called with, in the thread that captured it.
  c10::impl::LocalDispatchKeySet dispatch_keys = c10::impl::tls_local_dispatch_key_set();
};

/// What a capture ends with.
struct Captured {
  std::vector<Work> work;
  /// All that was allocated meanwhile.
  std::vector<std::shared_ptr<Block>> memory;
};

/// The capture of one stream by one thread. That thread only, unless said otherwise.
///
/// Operators need plausible values even in a capture, where they compute nothing: an index that is garbage
/// would be out of range. So they do compute, but write to copies of the memory, which end with the capture;
/// random numbers come from copies of the generators.
class Capture {
 public:
  Capture(StreamName stream, std::vector<at::Generator> generators)
      : stream_(stream), generators_(std::move(generators)) {}

  StreamName stream() const { return stream_; }
  bool is_own_thread() const { return thread_ == std::this_thread::get_id(); }
  bool is_broken() const { return is_broken_; }
  /// Of any thread.
  void invalidate() { is_broken_ = true; }
  [[noreturn]] void fail(const std::string& why);

  /// A CPU tensor on what `tensor`, of this GPU, would hold had the work been done.
  at::Tensor view(const at::Tensor& tensor);
  /// The same, to be written to.
  at::Tensor writable_view(const at::Tensor& tensor);
  /// The CPU's generator that stands for `generator`, a fake GPU's.
  at::Generator generator(const at::Generator& generator);

  void own(std::shared_ptr<Block> block) { captured_.memory.push_back(std::move(block)); }
  void note(Work work) { captured_.work.push_back(std::move(work)); }
  Captured finish();

 private:
  struct Copy {
    std::weak_ptr<Block> original;
    std::vector<char> content;
  };

  Copy& copy_of(const std::shared_ptr<Block>& block);

  const StreamName stream_;
  const std::thread::id thread_ = std::this_thread::get_id();
  std::atomic<bool> is_broken_{false};
  std::vector<at::Generator> generators_;
  std::map<c10::GeneratorImpl*, at::Generator> drawn_from_;
  std::map<uint64_t, Copy> copies_;  // by the block's serial number
  Captured captured_;
};

/// Makes `stream` capture, for the calling thread. Random operators may draw from `generators`.
std::shared_ptr<Capture> begin_capture(StreamName stream, std::vector<at::Generator> generators);
/// `capture`'s stream, which must be `current`, computes again, and `capture` is null. Throws where it was
/// broken.
Captured end_capture(std::shared_ptr<Capture>& capture, StreamName current);

/// `stream`'s capture, of whichever thread; null where it computes.
std::shared_ptr<Capture> capture_of(StreamName stream);
/// The same if it is the calling thread's.
std::shared_ptr<Capture> own_capture(StreamName stream);
/// What notes the work that the calling thread gives `stream` now; null where it is to be computed. Throws
/// where the capture was broken or is another thread's.
std::shared_ptr<Capture> capture_for_work(StreamName stream);

/// Called before the host waits for `stream`. Throws, and breaks what it does not go together with: that
/// stream's capture and those of the calling thread.
void refuse_host_wait_in_capture(StreamName stream);
/// The same for all streams of a device.
void refuse_device_wait_in_capture(int device);
/// Called before the host waits for an event, recorded in `capture` unless that is null.
void refuse_event_wait_in_capture(const std::shared_ptr<Capture>& capture);
/// Called before `stream` waits for an event, recorded in `capture` unless that is null. True if there is
/// nothing to wait for, as both are of one capture; throws where the wait would cross a capture's border.
bool is_wait_in_capture(StreamName stream, const std::shared_ptr<Capture>& capture);
/// Throws if the calling thread's current stream of `device` captures.
void refuse_in_capture(c10::Device device, const char* what);

}  // namespace lockstep::fake_gpu
