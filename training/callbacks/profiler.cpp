#include "lockstep/training/callbacks/profiler.h"

#include <ATen/Context.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <cerrno>
#include <filesystem>
#include <set>
#include <system_error>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/training/callbacks/internal/step_memory.h"

namespace lockstep {
namespace {

namespace profiling = torch::profiler::impl;

profiling::ProfilerConfig config_of(ProfilerOutput output) {
  const auto state =
      output == ProfilerOutput::kNvtx ? profiling::ProfilerState::NVTX : profiling::ProfilerState::KINETO;
  return profiling::ProfilerConfig(state, /*report_input_shapes=*/true);
}

std::set<profiling::ActivityType> activities() {
  std::set<profiling::ActivityType> types{profiling::ActivityType::CPU};
  if (at::hasCUDA()) types.insert(profiling::ActivityType::CUDA);
  return types;
}

}  // namespace

Profiler::Profiler(const ProfilerOptions& options) : options_(options) {
  if (options.steps < 1)
    throw InvalidArgument(c10::str("[Profiler] expected 1 or more steps, but got ", options.steps));
  if (options.skip_steps < 0) {
    throw InvalidArgument(
        c10::str("[Profiler] expected skip_steps of 0 or more, but got ", options.skip_steps));
  }
  if (options.output == ProfilerOutput::kNvtx) {
    if (!at::hasCUDA()) throw InvalidArgument("[Profiler] expected CUDA for NVTX ranges, but there is none");
    return;
  }
  if (options.path.empty() || std::filesystem::exists(options.path)) {
    throw InvalidArgument(
        c10::str("[Profiler] expected the path of a new file, but got '", options.path, "'"));
  }
}

Profiler::~Profiler() {
  if (!is_on_) return;
  try {
    torch::autograd::profiler::disableProfiler();
  } catch (...) {  // NOLINT(bugprone-empty-catch): an error has ended the fit already
  }
}

void Profiler::on_step_begin(FitState& state) {
  if (!state.is_chief() || seen_++ != options_.skip_steps) return;
  StepMemory::make_way_for_profiler();
  if (options_.output == ProfilerOutput::kChromeTrace)
    torch::autograd::profiler::prepareProfiler(config_of(options_.output), activities());
  torch::autograd::profiler::enableProfiler(config_of(options_.output), activities());
  is_on_ = true;
}

void Profiler::on_step_end(FitState&) {
  if (is_on_ && seen_ == options_.skip_steps + options_.steps) end();
}

void Profiler::on_fit_end(FitState&) {
  if (is_on_) end();
}

void Profiler::end() {
  is_on_ = false;
  const auto profile = torch::autograd::profiler::disableProfiler();
  if (options_.output == ProfilerOutput::kNvtx) return;
  profile->save(options_.path);
  // save() does not report failures.
  if (!std::filesystem::exists(options_.path))
    throw std::system_error(EIO, std::generic_category(), "cannot write the profile " + options_.path);
}

}  // namespace lockstep
