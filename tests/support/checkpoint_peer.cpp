// Commands that the tests in Python run:
//
//   checkpoint_peer copy IN OUT                  reads a .safetensors file and writes it again
//   checkpoint_peer shards STATE FOLDER          cuts a training state into the files of two workers
//   checkpoint_peer logits WEIGHTS IMAGES OUT    writes mobilenet_v2's outputs for the tensor "images"
//
// and the others that run() lists.
//
//   checkpoint_peer serve                        runs the commands that its input's lines hold, with tabs
//   between
//                                                the words, since its start takes longer than most of them

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "lockstep/models/mobilenet_v2.h"
#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/strategies/mirrored/mirrored_strategy.h"
#include "lockstep/training/checkpoints/weights_file.h"
#include "lockstep/training/formats/safetensors.h"
#include "lockstep/training/formats/state_file.h"
#include "lockstep/training/formats/state_view.h"
#include "lockstep/training/optimizers/fused_adagrad.h"
#include "lockstep/training/optimizers/fused_adam.h"
#include "lockstep/training/optimizers/fused_sgd.h"
#include "lockstep/training/optimizers/sparse_adam.h"
#include "lockstep/training/state/internal/checkpoint_shards.h"
#include "lockstep/training/state/optimizer_state.h"
#include "lockstep/training/state/training_state.h"

namespace lockstep {
namespace {

void copy(const std::string& in, const std::string& out) {
  if (in.ends_with(".pt")) return save_state_file(out, load_state_file(in));
  const auto loaded = load_safetensors(in);
  save_safetensors(out, loaded.tensors, loaded.metadata);
}

void copy_each(const std::vector<std::string>& files) {
  for (const auto& file : files) {
    try {
      copy(file, file + ".copy");
      std::cout << file << std::endl;
    } catch (const CheckpointError&) {
      // the caller sees that its line is missing
    }
  }
}

void logits(const std::string& weights, const std::string& images, const std::string& out) {
  MobileNetV2 model(MobileNetV2Options{.num_classes = 1000});
  init_weights(*model, weights);
  model->eval();
  const torch::NoGradGuard no_grad;
  save_safetensors(out, {{"logits", model->forward(load_safetensors(images).tensors.at(0).second)}});
}

std::unique_ptr<torch::optim::Optimizer> make_optimizer(
    const std::string& kind, const std::vector<torch::optim::OptimizerParamGroup>& groups) {
  if (kind == "FusedAdam") return std::make_unique<FusedAdam>(groups);
  if (kind == "FusedAdamW") return std::make_unique<FusedAdamW>(groups);
  if (kind == "FusedSgd") return std::make_unique<FusedSgd>(groups);
  if (kind == "FusedAdagrad") return std::make_unique<FusedAdagrad>(groups);
  if (kind == "SparseAdam") return std::make_unique<SparseAdam>(groups);
  if (kind == "Adagrad") return std::make_unique<torch::optim::Adagrad>(groups);
  if (kind == "Adam") return std::make_unique<torch::optim::Adam>(groups);
  if (kind == "AdamW") return std::make_unique<torch::optim::AdamW>(groups);
  return std::make_unique<torch::optim::SGD>(groups, 1.0);
}

/// IN holds "groups" (lists of parameters), "state" and "steps" (a list of gradients, or None, for each). OUT
/// gets the same groups and the state afterwards. The new optimizer has default options. A SparseAdam gets
/// the rows of the gradients that are not 0.
void step_optimizer(const std::string& kind, const std::string& in, const std::string& out) {
  const StateValue state = load_state_file(in);
  const StateView view(state, in);
  std::vector<torch::optim::OptimizerParamGroup> groups;
  std::vector<torch::Tensor> parameters;
  StateValue::List saved_groups;
  for (const auto& group : view.at("groups").items()) {
    std::vector<torch::Tensor> members;
    for (const auto& tensor : group.items())
      members.push_back(tensor.tensor().clone().set_requires_grad(true));
    parameters.insert(parameters.end(), members.begin(), members.end());
    saved_groups.emplace_back(StateValue::List(members.begin(), members.end()));
    groups.emplace_back(members);
  }
  const auto optimizer = make_optimizer(kind, groups);
  const auto& dict = std::get<StateValue::Dict>(state.data());
  load_optimizer_state(*optimizer, *dict.find("state"), in);
  for (const auto& step : view.at("steps").items()) {
    const auto gradients = step.items();
    for (size_t i = 0; i < parameters.size(); ++i) {
      auto gradient = gradients.at(i).is_none() ? torch::Tensor() : gradients.at(i).tensor();
      if (kind == "SparseAdam" && gradient.defined())
        gradient = gradient.dim() == 0 ? torch::Tensor() : gradient.to_sparse(1);
      parameters[i].mutable_grad() = gradient;
    }
    optimizer->step();
  }
  StateValue::Dict result;
  result.add("groups", saved_groups);
  result.add("state", optimizer_state(*optimizer));
  save_state_file(out, result);
}

/// A linear layer and BatchNorm on two replicas. OUT gets the parameters, each replica's running mean, the
/// parameters after one more step with gradients of 0.5, and replica 1's next random numbers.
void train(const std::string& path, const std::string& out) {
  MirroredStrategy strategy({"cpu:0", "cpu:1"});
  torch::manual_seed(5);
  auto model = strategy.scope([](ReplicaContext&) {
    return torch::nn::Sequential(torch::nn::Linear(4, 3), torch::nn::BatchNorm1d(3));
  });
  auto optimizer = strategy.scope([&](ReplicaContext& replica) {
    return FusedAdamW(model[replica]->parameters(), FusedAdamWOptions(0.05).weight_decay(0.2));
  });
  const auto step = [](ReplicaContext& replica, torch::nn::Sequential& net, FusedAdamW& adam) {
    adam.zero_grad();
    net->forward(torch::randn({8, 4}, replica.generator())).square().sum().backward();
    replica.apply_gradients(adam);
  };
  for (int i = 0; i < 3; ++i) strategy.run(step, model, optimizer);
  TrainingState state(strategy);
  state.add_model(model);
  state.add_optimizer("optimizer", optimizer);
  state.save(path, {.epoch = 1, .step = 3, .metrics = {{"loss", 0.5}}});

  NamedTensors result;
  const auto add_parameters = [&](const std::string& prefix) {
    for (const auto& item : model.primary()->named_parameters())
      result.emplace_back(prefix + item.key(), item.value().detach().clone());
  };
  add_parameters("before.");
  for (size_t replica = 0; replica < 2; ++replica) {
    result.emplace_back("running_mean." + std::to_string(replica),
                        model.local_values()[replica]->named_buffers()["1.running_mean"]);
  }
  const auto drawn =
      strategy.run([](ReplicaContext& replica) { return torch::rand({5}, replica.generator()); });
  result.emplace_back("drawn", drawn.local_values()[1]);
  for (auto& parameter : model.primary()->parameters())
    parameter.mutable_grad() = torch::full_like(parameter, 0.5);
  optimizer.primary().step();
  add_parameters("after.");
  save_safetensors(out, result);
}

void cut_into_shards(const std::string& path, const std::string& folder) {
  const StateValue state = load_state_file(path);
  for (int index = 0; index < 2; ++index) {
    StateValue::Dict shard = shard_of(*state.get_if<StateValue::Dict>(), {index, 2});
    shard.add(kShardKey, mark_of({index, 2}));
    save_state_file(folder + "/" + shard_file_name(index), shard);
  }
}

int run(const std::vector<std::string>& arguments) {
  const std::string command = arguments.empty() ? "" : arguments[0];
  if (command == "copy" && arguments.size() == 3) {
    copy(arguments[1], arguments[2]);
  } else if (command == "copy_each") {
    copy_each({arguments.begin() + 1, arguments.end()});
  } else if (command == "weights" && arguments.size() == 3) {
    save_weights(arguments[2], load_weights(arguments[1]));
  } else if (command == "optimizer" && arguments.size() == 4) {
    step_optimizer(arguments[1], arguments[2], arguments[3]);
  } else if (command == "train" && arguments.size() == 3) {
    train(arguments[1], arguments[2]);
  } else if (command == "shards" && arguments.size() == 3) {
    cut_into_shards(arguments[1], arguments[2]);
  } else if (command == "names") {
    for (const auto& [name, tensor] : state_dict(*MobileNetV2(MobileNetV2Options())))
      std::cout << name << "\n";
  } else if (command == "logits" && arguments.size() == 4) {
    logits(arguments[1], arguments[2], arguments[3]);
  } else {
    return 2;
  }
  return 0;
}

/// Answers each command with what it prints, or the message of its failure, and a line that says how it
/// ended.
int serve() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::vector<std::string> words;
    std::istringstream text(line);
    for (std::string word; std::getline(text, word, '\t');) words.push_back(word);
    try {
      if (const int code = run(words); code != 0) return code;
      std::cout << "\4done" << std::endl;
    } catch (const std::exception& error) {
      std::cout << error.what() << "\n\4failed" << std::endl;
    }
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    return arguments == std::vector<std::string>{"serve"} ? lockstep::serve() : lockstep::run(arguments);
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
    return 1;
  }
}
