#pragma once

// Internal to the fake GPU: streams that note their work for a graph.

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
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

/// An operator or a copy that every replay does again, or a point of order between the streams of a capture.
struct Work {
  std::string name;
  std::vector<StreamOrder::Range> reads;
  std::vector<StreamOrder::Range> writes;
  /// The memory that it uses, which must still exist at a replay.
  std::vector<std::weak_ptr<const void>> memory;
  std::function<void()> compute;
  /// The dispatch keys of the thread that captured it.
  c10::impl::LocalDispatchKeySet dispatch_keys = c10::impl::tls_local_dispatch_key_set();
  /// On which of the capture's streams: 0 is the one that it began on.
  size_t branch = 0;
  /// The event that is recorded there, or waited for, in place of anything computed.
  std::optional<size_t> recorded = std::nullopt;
  std::optional<size_t> awaited = std::nullopt;
};

/// The result of a capture.
struct Captured {
  std::vector<Work> work;
  /// All that was allocated meanwhile.
  std::vector<std::shared_ptr<Block>> memory;
  size_t num_events = 0;
};

/// The capture of one stream by one thread, and of those that have joined it. That thread only, unless said
/// otherwise.
///
/// Operators need plausible values even in a capture, where they compute nothing: an index that is garbage
/// would be out of range. So they do compute, but write to copies of the memory, which end with the capture;
/// random numbers come from copies of the generators.
class Capture {
 public:
  Capture(StreamName stream, std::vector<at::Generator> generators)
      : branches_{{stream}}, generators_(std::move(generators)) {}

  StreamName stream() const { return branches_.front().stream; }
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
  void note(StreamName stream, Work work);
  /// Notes an event on one of the streams; its number is for wait().
  size_t record(StreamName stream);
  /// Notes that `stream`, which may join the capture by that, waits for an event.
  void wait(StreamName stream, size_t event);
  /// All streams, the first of which is stream().
  std::vector<StreamName> streams() const;
  /// Whether another stream has work that stream() has not waited for.
  bool has_unjoined_work() const;
  Captured finish();

 private:
  struct Copy {
    std::weak_ptr<Block> original;
    std::vector<char> content;
  };

  struct Branch {
    StreamName stream;
    size_t noted = 0;   // how much work
    size_t joined = 0;  // how much of it stream() has waited for
  };
  struct Event {
    size_t branch = 0;
    size_t noted = 0;  // before it
  };

  Copy& copy_of(const std::shared_ptr<Block>& block);
  size_t branch_of(StreamName stream);

  std::vector<Branch> branches_;
  std::vector<Event> events_;
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
/// Returns the capture that notes the work which the calling thread gives `stream` now; null if the work is
/// to be computed. Throws if the capture was broken or is another thread's. Throws c10::AcceleratorError for
/// a device that has failed.
std::shared_ptr<Capture> capture_for_work(StreamName stream);

/// Called before the host waits for `stream`. Throws, and breaks what it does not go together with: that
/// stream's capture and those of the calling thread.
void refuse_host_wait_in_capture(StreamName stream);
/// The same for all streams of a device.
void refuse_device_wait_in_capture(int device);
/// Called before the host waits for an event, recorded in `capture` unless that is null.
void refuse_event_wait_in_capture(const std::shared_ptr<Capture>& capture);
/// Streams that joins_captures() is true of join a capture by waiting for one of its events. CUDA lets any
/// do that; here it is a wait that nobody thought of.
inline constexpr int64_t kFirstJoiningStream = 1000;
inline bool joins_captures(StreamName stream) {
  return stream.id >= kFirstJoiningStream;
}

/// Called before `stream` waits for an event, recorded in `capture` with number `event` unless that is null.
/// True if the capture has noted it; throws where the wait would cross a capture's border.
bool is_wait_in_capture(StreamName stream, const std::shared_ptr<Capture>& capture, size_t event);
/// Called before the calling thread draws from the default generator of `device` without capturing. Throws if
/// another thread captures that device's work.
void refuse_draw_outside_capture(c10::Device device);
/// Throws if the calling thread's current stream of `device` captures.
void refuse_in_capture(c10::Device device, const char* what);

}  // namespace lockstep::fake_gpu
