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
/// name, shape, dtype, requires_grad or in being the same tensor as another one (tied weights). `who` begins
/// the message.
void check_same_structure(const std::vector<ModulePointer>& replicas, const std::string& who,
                          int first_replica = 0);

/// Whether a parameter has the shape of a table and the memory of one number, since its rows are elsewhere
/// (see ServedTable).
bool stands_for_table(const at::Tensor& tensor);

/// Copies all parameters and buffers of replica `source` into the others', but for those that stand for a
/// table.
void copy_module_state(const std::vector<ModulePointer>& replicas, size_t source);

/// The training flags of a module and all below it, in the order of modules().
std::vector<bool> training_flags(const torch::nn::Module& module);
void set_training_flags(torch::nn::Module& module, const std::vector<bool>& flags);

/// The mean of the replicas' values of one buffer, taken in float64 in replica order, in the buffer's dtype
/// and on the first one's device; of a buffer that is not floating-point the first.
at::Tensor mean_of_replicas(const std::vector<at::Tensor>& values);

/// Writes the mean over the replicas of every floating-point buffer into all of them; other buffers come from
/// the first replica. See mean_of_replicas().
void average_buffers(const std::vector<ModulePointer>& replicas);

/// A copy of `module` on `device`, with what Module::clone() alone loses: requires_grad and training flags;
/// the process's random state is left as it was. Throws InvalidArgument naming the module that cannot be
/// cloned, or the first registered tensor that differs in the copy (tied weights come apart there).
ModulePointer clone_module(const ModulePointer& module, torch::Device device);

/// All parameters and buffers with their full names, parameters first; shared tensors appear under each name.
std::vector<std::pair<std::string, at::Tensor>> named_state(const torch::nn::Module& module);

}  // namespace lockstep
