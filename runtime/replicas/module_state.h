#pragma once

#include <torch/nn/module.h>
#include <torch/types.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

using ModulePointer = std::shared_ptr<torch::nn::Module>;

/// Throws InvalidArgument naming the first parameter or buffer that differs between the replicas' modules in
/// name, shape, dtype, requires_grad or sharing (tied weights), or that has the same memory on two replicas.
/// The message starts with `who`.
void check_same_structure(const std::vector<ModulePointer>& replicas, const std::string& who,
                          int first_replica = 0);

/// Whether a parameter has the shape of a table but the memory of a single number, since the rows are stored
/// elsewhere (see ServedTable).
bool stands_for_table(const at::Tensor& tensor);

/// Copies all parameters and buffers of replica `source` to the others, except parameters that stand for a
/// table, shards of parameters (see ShardedParameter), and buffers that are summed over the replicas (see
/// BufferAggregation), of which each replica has its own part.
void copy_module_state(const std::vector<ModulePointer>& replicas, size_t source);

/// Returns the training flags of a module and all its submodules, in the order of modules().
std::vector<bool> training_flags(const torch::nn::Module& module);
void set_training_flags(torch::nn::Module& module, const std::vector<bool>& flags);

/// Copies `module` to `device`, including requires_grad and training flags, which Module::clone() loses.
/// Leaves the process's random state unchanged. Throws InvalidArgument naming the module that cannot be
/// cloned, or the first registered tensor that differs in the copy, such as tied weights, which clone()
/// separates.
ModulePointer clone_module(const ModulePointer& module, torch::Device device);

/// Returns all parameters and buffers with their full names, parameters first. A shared tensor appears under
/// each of its names.
std::vector<std::pair<std::string, at::Tensor>> named_state(const torch::nn::Module& module);

}  // namespace lockstep
