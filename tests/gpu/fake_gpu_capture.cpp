#include "lockstep/tests/gpu/fake_gpu_capture.h"

#include <ATen/Context.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "lockstep/tests/gpu/fake_gpu_state.h"

namespace lockstep::fake_gpu {
namespace {

struct Captures {
  std::mutex mutex;
  std::map<StreamName, std::shared_ptr<Capture>> running;
};

Captures& captures() {
  static auto* const captures = new Captures;  // also used by tensors with static lifetime
  return *captures;
}

template <typename Predicate>
void refuse_if_any(const Predicate& is_met) {
  std::shared_ptr<Capture> met;
  {
    const std::lock_guard<std::mutex> lock(captures().mutex);
    for (const auto& [stream, capture] : captures().running) {
      if (!is_met(*capture)) continue;
      capture->invalidate();
      met = capture;
    }
  }
  if (met) met->fail(kNotPermitted);
}

bool is_running(const std::shared_ptr<Capture>& capture) {
  return capture_of(capture->stream()) == capture;
}

}  // namespace

void Capture::fail(const std::string& why) {
  invalidate();
  TORCH_CHECK(false, "CUDA error: ", why);
}

Capture::Copy& Capture::copy_of(const std::shared_ptr<Block>& block) {
  const auto [found, is_new] = copies_.try_emplace(block->serial);
  if (is_new) {
    found->second.original = block;
    found->second.content = block->before_replay.empty()
                                ? std::vector<char>(block->data, block->data + block->bytes)
                                : block->before_replay;
  }
  return found->second;
}

at::Tensor Capture::view(const at::Tensor& tensor) {
  const auto block = block_at(tensor.const_data_ptr());
  if (!block || (!copies_.contains(block->serial) && block->before_replay.empty())) return host_view(tensor);
  return writable_view(tensor);
}

at::Tensor Capture::writable_view(const at::Tensor& tensor) {
  const auto* const data = static_cast<const char*>(tensor.const_data_ptr());
  const auto block = block_at(data);
  if (!block) return host_view(tensor);
  return host_view(tensor, copy_of(block).content.data() + (data - block->data));
}

at::Generator Capture::generator(const at::Generator& generator) {
  const bool is_known = std::find(generators_.begin(), generators_.end(), generator) != generators_.end();
  if (!is_known && generator != at::globalContext().defaultGenerator(generator.device())) {
    invalidate();
    TORCH_CHECK(false, "Attempt to increase offset for a CUDA generator not in capture mode.");
  }
  auto& copy = drawn_from_[generator.unsafeGetGeneratorImpl()];
  if (!copy.defined()) copy = cpu_generator(generator).clone();
  return copy;
}

size_t Capture::branch_of(StreamName stream) {
  const auto found = std::find_if(branches_.begin(), branches_.end(),
                                  [&](const Branch& branch) { return branch.stream == stream; });
  if (found != branches_.end()) return static_cast<size_t>(found - branches_.begin());
  branches_.push_back({stream});
  return branches_.size() - 1;
}

void Capture::note(StreamName stream, Work work) {
  work.branch = branch_of(stream);
  ++branches_[work.branch].noted;
  captured_.work.push_back(std::move(work));
}

size_t Capture::record(StreamName stream) {
  const size_t branch = branch_of(stream);
  events_.push_back({branch, branches_[branch].noted});
  captured_.work.push_back({.name = "an event", .branch = branch, .recorded = captured_.num_events});
  return captured_.num_events++;
}

void Capture::wait(StreamName stream, size_t event) {
  note(stream, {.name = "a wait", .awaited = event});
  if (stream != this->stream()) return;
  Branch& branch = branches_[events_[event].branch];
  branch.joined = std::max(branch.joined, events_[event].noted);
}

std::vector<StreamName> Capture::streams() const {
  std::vector<StreamName> streams;
  for (const auto& branch : branches_) streams.push_back(branch.stream);
  return streams;
}

bool Capture::has_unjoined_work() const {
  return std::any_of(branches_.begin() + 1, branches_.end(),
                     [](const Branch& branch) { return branch.joined < branch.noted; });
}

Captured Capture::finish() {
  // Keeps the contents: a graph captured later may read them before this one is replayed.
  for (auto& [serial, copy] : copies_) {
    const auto block = copy.original.lock();
    if (block && block->is_held && block->owner == BlockOwner::kGraph)
      block->before_replay = std::move(copy.content);
  }
  copies_.clear();
  drawn_from_.clear();
  return std::move(captured_);
}

std::shared_ptr<Capture> begin_capture(StreamName stream, std::vector<at::Generator> generators) {
  TORCH_CHECK(
      stream.id != 0,
      "CUDA graphs must be captured on a non-default stream. (However, after capture, it's ok to replay "
      "them on the default stream.)");
  auto capture = std::make_shared<Capture>(stream, std::move(generators));
  const std::lock_guard<std::mutex> lock(captures().mutex);
  const bool is_new = captures().running.try_emplace(stream, capture).second;
  TORCH_CHECK(is_new, "CUDA error: ", kNotPermitted);
  return capture;
}

Captured end_capture(std::shared_ptr<Capture>& capture, StreamName current) {
  TORCH_CHECK(current == capture->stream(), "Capture must end on the same stream it began on.");
  if (!capture->is_own_thread())
    capture->fail("attempt to terminate a thread-local capture sequence from another thread");
  {
    const std::lock_guard<std::mutex> lock(captures().mutex);
    for (const auto& stream : capture->streams()) captures().running.erase(stream);
  }
  const auto ended = std::exchange(capture, nullptr);
  if (ended->is_broken()) ended->fail(kPreviousError);
  if (ended->has_unjoined_work()) ended->fail(kUnjoined);
  return ended->finish();
}

std::shared_ptr<Capture> capture_of(StreamName stream) {
  const std::lock_guard<std::mutex> lock(captures().mutex);
  const auto found = captures().running.find(stream);
  return found == captures().running.end() ? nullptr : found->second;
}

std::shared_ptr<Capture> own_capture(StreamName stream) {
  auto capture = capture_of(stream);
  return capture && capture->is_own_thread() ? capture : nullptr;
}

std::shared_ptr<Capture> capture_for_work(StreamName stream) {
  check_device(stream.device);
  auto capture = capture_of(stream);
  if (!capture) return nullptr;
  if (capture->is_broken()) capture->fail(kPreviousError);
  if (!capture->is_own_thread()) capture->fail("work of another thread for a capturing stream");
  return capture;
}

void refuse_host_wait_in_capture(StreamName stream) {
  check_device(stream.device);
  refuse_if_any(
      [&](const Capture& capture) { return capture.is_own_thread() || capture.stream() == stream; });
}

void refuse_device_wait_in_capture(int device) {
  refuse_if_any(
      [&](const Capture& capture) { return capture.is_own_thread() || capture.stream().device == device; });
}

void refuse_event_wait_in_capture(const std::shared_ptr<Capture>& capture) {
  refuse_if_any([](const Capture& running) { return running.is_own_thread(); });
  if (capture) capture->fail(kCapturedEvent);
}

bool is_wait_in_capture(StreamName stream, const std::shared_ptr<Capture>& capture, size_t event) {
  const auto waiting = capture_for_work(stream);
  if (capture && !waiting && joins_captures(stream) && is_running(capture) && capture->is_own_thread()) {
    const std::lock_guard<std::mutex> lock(captures().mutex);
    captures().running.emplace(stream, capture);
    capture->wait(stream, event);
    return true;
  }
  if (waiting && waiting == capture) {
    capture->wait(stream, event);
    return true;
  }
  if (capture) {
    if (waiting) waiting->invalidate();
    capture->fail(is_running(capture) ? kUnjoined : kCapturedEvent);
  }
  // CUDA refuses, whether or not the event's work is done.
  if (waiting) waiting->fail(kIsolation);
  return false;
}

void refuse_draw_outside_capture(c10::Device device) {
  const std::lock_guard<std::mutex> lock(captures().mutex);
  for (const auto& [stream, capture] : captures().running)
    TORCH_CHECK(stream.device != device.index(),
                "Offset increment outside graph capture encountered unexpectedly.");
}

void refuse_in_capture(c10::Device device, const char* what) {
  TORCH_CHECK(!own_capture(current_stream(device)), what, " during CUDA graph capture.");
}

}  // namespace lockstep::fake_gpu
