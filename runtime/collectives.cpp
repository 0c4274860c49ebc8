#include "lockstep/runtime/collectives.h"

#include <torch/csrc/autograd/custom_function.h>

#include "lockstep/runtime/errors.h"

namespace lockstep {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using BackendPointer = c10::intrusive_ptr<c10d::Backend>;

/// What backward needs of forward, kept alive by the graph.
void save_backend(AutogradContext* context, const BackendPointer& backend) {
  context->saved_data["backend"] = c10::IValue::make_capsule(backend);
}

BackendPointer saved_backend(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<c10d::Backend>(context->saved_data["backend"].toCapsule());
}

struct AllReduce : public torch::autograd::Function<AllReduce> {
  // Of lists, apply() tracks an at::TensorList only: through a std::vector no gradient would flow.
  static variable_list forward(AutogradContext* context, const BackendPointer& backend, ReduceOp op,
                               at::TensorList tensors) {
    save_backend(context, backend);
    context->saved_data["op"] = static_cast<int64_t>(op);
    variable_list results;
    for (const auto& tensor : tensors) results.push_back(tensor.clone());
    all_reduce_(*backend, op, results);
    return results;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const auto op = static_cast<ReduceOp>(context->saved_data["op"].toInt());
    variable_list results{at::Tensor(), at::Tensor()};
    variable_list sums;
    for (const auto& gradient : gradients) sums.push_back(gradient.clone());
    all_reduce_(*saved_backend(context), op, sums);
    results.insert(results.end(), sums.begin(), sums.end());
    return results;
  }
};

struct AllGather : public torch::autograd::Function<AllGather> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor, const BackendPointer& backend,
                            int64_t axis) {
    save_backend(context, backend);
    context->saved_data["axis"] = axis;
    const at::Tensor mine =
        at::tensor({tensor.size(axis)}, tensor.options().dtype(at::kLong).requires_grad(false));
    std::vector<std::vector<at::Tensor>> sizes(1);
    for (int rank = 0; rank < backend->getSize(); ++rank) sizes[0].push_back(at::empty_like(mine));
    std::vector<at::Tensor> input{mine};
    backend->allgather(sizes, input)->wait();
    std::vector<std::vector<at::Tensor>> outputs(1);
    int64_t begin = 0;
    for (int rank = 0; rank < backend->getSize(); ++rank) {
      std::vector<int64_t> shape = tensor.sizes().vec();
      const auto size = sizes[0][static_cast<size_t>(rank)].item<int64_t>();
      shape[static_cast<size_t>(axis)] = size;
      if (rank < backend->getRank()) begin += size;
      outputs[0].push_back(at::empty(shape, tensor.options().requires_grad(false)));
    }
    context->saved_data["begin"] = begin;
    context->saved_data["length"] = tensor.size(axis);
    std::vector<at::Tensor> inputs{tensor.detach().contiguous()};
    backend->allgather(outputs, inputs)->wait();
    return at::cat(outputs[0], axis);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    at::Tensor sum = gradients[0].clone();
    all_reduce_(*saved_backend(context), ReduceOp::kSum, {sum});
    return {sum.narrow(context->saved_data["axis"].toInt(), context->saved_data["begin"].toInt(),
                       context->saved_data["length"].toInt()),
            at::Tensor(), at::Tensor()};
  }
};

}  // namespace

void all_reduce_(c10d::Backend& backend, ReduceOp op, std::vector<at::Tensor> tensors) {
  const at::NoGradGuard no_grad;
  c10d::AllreduceOptions options;
  options.reduceOp = op == ReduceOp::kMean ? c10d::ReduceOp::AVG : c10d::ReduceOp::SUM;
  backend.allreduce(tensors, options)->wait();
}

void broadcast_(c10d::Backend& backend, int source, std::vector<at::Tensor> tensors) {
  if (source < 0 || source >= backend.getSize()) {
    throw InvalidArgument("[broadcast] expected a source replica from 0 to " +
                          std::to_string(backend.getSize() - 1) + ", but got " + std::to_string(source));
  }
  const at::NoGradGuard no_grad;
  c10d::BroadcastOptions options;
  options.rootRank = source;
  backend.broadcast(tensors, options)->wait();
}

std::vector<at::Tensor> all_reduce(const BackendPointer& backend, ReduceOp op,
                                   const std::vector<at::Tensor>& tensors) {
  return AllReduce::apply(backend, op, at::TensorList(tensors));
}

at::Tensor all_gather(const BackendPointer& backend, const at::Tensor& tensor, int64_t axis) {
  if (tensor.dim() == 0 || axis < -tensor.dim() || axis >= tensor.dim()) {
    throw InvalidArgument("[all_gather] expected an axis of a tensor with " + std::to_string(tensor.dim()) +
                          " dimensions, but got " + std::to_string(axis));
  }
  return AllGather::apply(tensor, backend, axis < 0 ? axis + tensor.dim() : axis);
}

at::Tensor gather_rows(c10d::Backend& backend, const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  return all_gather(c10::intrusive_ptr<c10d::Backend>::reclaim_copy(&backend), tensor, 0);
}

}  // namespace lockstep
