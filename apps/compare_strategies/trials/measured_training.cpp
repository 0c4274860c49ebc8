#include "lockstep/apps/compare_strategies/trials/measured_training.h"

#include <c10/util/StringUtil.h>
#include <torch/utils.h>

#include <algorithm>
#include <numeric>
#include <variant>

#include "lockstep/apps/compare_strategies/trials/measured_clicks.h"
#include "lockstep/apps/compare_strategies/trials/measured_images.h"
#include "lockstep/apps/compare_strategies/trials/measured_tokens.h"
#include "lockstep/apps/compare_strategies/trials/parameter_file.h"
#include "lockstep/apps/shared/device_plugin.h"
#include "lockstep/runtime/devices/device.h"
#include "lockstep/runtime/replicas/sharded_parameter.h"
#include "lockstep/training/checkpoints/weights_file.h"
#include "lockstep/training/state/memory_of_ranks.h"

namespace lockstep::apps {
namespace {

/// Returns the devices that the strategy's workers divide among themselves, none if they are CPUs.
Devices devices_of_workers(const ComparedStrategy& strategy) {
  return strategy.name == "tpu" ? devices_of(c10::DeviceType::PrivateUse1) : accelerators();
}

/// Sets the devices of one of the strategy's processes.
void choose_devices(const ComparedStrategy& strategy, int process, StrategyChoice& choice) {
  choice.strategy = strategy.name;
  choice.mesh = strategy.mesh;
  choice.sharding = strategy.sharding;
  choice.replica_weights = strategy.replica_weights;
  if (!strategy.devices.empty()) {
    choice.devices = strategy.devices;
  } else if (!has_workers(strategy)) {
    choice.replicas = strategy.replicas;
  } else if (const auto devices = devices_of_workers(strategy); !devices.empty()) {
    // One device for each worker. If there are too few, workers share them, which NCCL refuses with a
    // message.
    const int worker = has_servers(strategy) ? process - 1 : process;
    const auto shared = static_cast<size_t>(std::max(worker, 0)) % devices.size();
    choice.devices = {worker < 0 ? "cpu:0" : devices[shared].str()};
  }
}

}  // namespace

void measure_training(const CompareOptions& options) {
  const auto& strategy = options.strategies.at(static_cast<size_t>(options.measuring.strategy));
  ComparedWork work = options.work;
  load_device_plugin(process_environment());
  choose_devices(strategy, options.measuring.process, strategy_choice_of(work));
  MeasuredTraining measured;
  if (auto* clicks = std::get_if<CtrOptions>(&work)) {
    clicks->max_staleness = strategy.max_staleness;
    torch::manual_seed(clicks->seed);
    measured = measure_clicks(options, *clicks);
  } else if (const auto* tokens = std::get_if<GptTrainOptions>(&work)) {
    torch::manual_seed(tokens->seed);
    measured = measure_tokens(options, *tokens);
  } else {
    const auto& images = std::get<TrainOptions>(work);
    torch::manual_seed(images.seed);
    measured = measure_images(options, images);
  }
  if (!options.measuring.parameters.empty())
    write_parameter_file(options.measuring.parameters, measured.parameters);
  write_measured_run(options.measuring.result, measured.run);
}

std::vector<torch::Tensor> whole_parameters(Strategy& strategy, const std::vector<ModulePointer>& modules) {
  auto own = modules.front()->parameters();
  if (std::none_of(own.begin(), own.end(), is_shard)) return own;
  const auto weights = whole_state_dict(strategy, modules);
  std::vector<torch::Tensor> parameters;
  for (const auto& name : modules.front()->named_parameters().keys()) {
    for (const auto& [known, tensor] : weights)
      if (known == name) parameters.push_back(tensor);
  }
  return parameters;
}

void set_parameters(const std::vector<torch::Tensor>& parameters, MeasuredTraining& measured) {
  measured.parameters = doubles_of(parameters);
  measured.run.parameters = static_cast<int64_t>(measured.parameters.size());
}

void set_memory(Strategy& strategy, const std::vector<ModulePointer>& modules,
                const std::vector<std::unique_ptr<torch::optim::Optimizer>>& optimizers,
                MeasuredTraining& measured) {
  std::vector<torch::optim::Optimizer*> pointers;
  pointers.reserve(optimizers.size());
  for (const auto& optimizer : optimizers) pointers.push_back(optimizer.get());
  measured.run.ranks = memory_of_ranks(strategy, modules, pointers);
}

double mean_seconds_waited(Strategy& strategy) {
  const auto waited = strategy.extended().seconds_waited();
  return std::accumulate(waited.begin(), waited.end(), 0.0) / static_cast<double>(waited.size());
}

std::vector<double> doubles_of(const std::vector<torch::Tensor>& tensors) {
  std::vector<double> values;
  for (const auto& tensor : tensors) {
    const auto flat = tensor.detach().to(torch::kCPU, torch::kDouble).contiguous();
    values.insert(values.end(), flat.const_data_ptr<double>(), flat.const_data_ptr<double>() + flat.numel());
  }
  return values;
}

}  // namespace lockstep::apps
