// Collectives of the workers between runs.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <ATen/ops/zeros.h>
#include <c10/util/StringUtil.h>

#include <algorithm>
#include <cstring>
#include <sstream>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/runtime/collectives/internal/byte_layout.h"
#include "lockstep/runtime/collectives/internal/local_sum.h"
#include "lockstep/runtime/workers/worker_group.h"
#include "lockstep/runtime/workers/worker_info.h"

namespace lockstep {
std::vector<std::string> WorkerGroup::gather(const std::string& own) {
  std::vector<std::string> texts;
  between_runs_->exchange("gather texts", [&](c10d::Backend& backend) {
    const at::Tensor size = at::empty({1}, at::kLong);
    *size.mutable_data_ptr<int64_t>() = static_cast<int64_t>(own.size());
    const at::Tensor sizes = gather_rows_of_ranks(backend, size);
    const int64_t* lengths = sizes.const_data_ptr<int64_t>();
    const int64_t most = std::max<int64_t>(1, *std::max_element(lengths, lengths + size_));
    const at::Tensor text = at::zeros({most}, at::kByte);
    std::memcpy(text.mutable_data_ptr<uint8_t>(), own.data(), own.size());
    const at::Tensor all = gather_rows_of_ranks(backend, text);
    for (int worker = 0; worker < size_; ++worker) {
      const auto* row = reinterpret_cast<const char*>(all.const_data_ptr<uint8_t>()) + worker * most;
      texts.emplace_back(row, static_cast<size_t>(lengths[worker]));
    }
    return WorkerChannel::Works{};
  });
  return texts;
}

std::vector<std::vector<at::Tensor>> WorkerGroup::gather_tensors(const std::vector<at::Tensor>& own) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> here;
  std::string text = c10::str(own.size());
  for (const auto& tensor : own) {
    here.push_back(tensor.detach().cpu().contiguous());
    text += c10::str(" ", static_cast<int>(tensor.scalar_type()), " ", tensor.dim());
    for (const int64_t size : tensor.sizes()) text += c10::str(" ", size);
  }
  text += '\n';
  for (const auto& tensor : here)
    text.append(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  std::vector<std::vector<at::Tensor>> all;
  for (const auto& of_worker : gather(text)) {
    std::istringstream header(of_worker.substr(0, of_worker.find('\n')));
    size_t offset = of_worker.find('\n') + 1;
    size_t count = 0;
    header >> count;
    auto& tensors = all.emplace_back();
    for (size_t i = 0; i < count; ++i) {
      int dtype = 0;
      size_t dim = 0;
      header >> dtype >> dim;
      std::vector<int64_t> sizes(dim);
      for (int64_t& size : sizes) header >> size;
      const at::Tensor tensor = at::empty(sizes, static_cast<at::ScalarType>(dtype));
      // An empty tensor may have no memory.
      if (tensor.nbytes() > 0)
        std::memcpy(tensor.mutable_data_ptr(), of_worker.data() + offset, tensor.nbytes());
      offset += tensor.nbytes();
      tensors.push_back(tensor);
    }
  }
  return all;
}

void WorkerGroup::check_same(const std::string& what, const std::vector<std::string>& lines) {
  WorkerInfo own{.num_replicas = 1};  // only the info's lines are used
  for (const auto& line : lines) own.facts.emplace_back("", line);
  const auto texts = gather(own.text());
  for (int worker = 1; worker < size_; ++worker) {
    if (texts[static_cast<size_t>(worker)] == texts[0]) continue;
    const auto difference =
        WorkerInfo::parse(texts[static_cast<size_t>(worker)]).difference(WorkerInfo::parse(texts[0]));
    if (!difference) continue;
    const auto shown = [](const std::string& line) { return line.empty() ? "none" : line; };
    throw ClusterError(c10::str("[", what, "] expected the same on all workers, but ", name_of(0), " has ",
                                shown(difference->there), " where ", name_of(worker), " has ",
                                shown(difference->here)));
  }
}

void WorkerGroup::broadcast_(const std::vector<at::Tensor>& tensors) {
  const at::NoGradGuard no_grad;
  const ByteLayout byte_layout(tensors);
  if (byte_layout.total() == 0) return;
  const at::Tensor buffer = at::empty({byte_layout.total()}, at::kByte);
  for (size_t i = 0; rank_ == 0 && i < tensors.size(); ++i)
    byte_layout.of(buffer, i, tensors[i]).copy_(tensors[i]);
  between_runs_->exchange(c10::str("broadcast of ", byte_layout.total(), " bytes"),
                          [&](c10d::Backend& backend) {
                            std::vector<at::Tensor> one{buffer};
                            return WorkerChannel::Works{backend.broadcast(one)};
                          });
  for (size_t i = 0; rank_ != 0 && i < tensors.size(); ++i) {
    at::Tensor tensor = tensors[i];
    tensor.copy_(byte_layout.of(buffer, i, tensor));
  }
}

at::Tensor WorkerGroup::sum(const at::Tensor& value) {
  const at::NoGradGuard no_grad;
  const at::Tensor real = value.is_complex() ? at::view_as_real(value) : value;
  at::Tensor sum = at::empty(real.sizes(), summable_dtype(real.scalar_type()));
  sum.copy_(real);
  between_runs_->exchange(c10::str("sum of ", sum.numel(), " ", sum.scalar_type()),
                          [&](c10d::Backend& backend) {
                            if (sum.numel() == 0) return WorkerChannel::Works{};
                            std::vector<at::Tensor> one{sum};
                            return WorkerChannel::Works{backend.allreduce(one)};
                          });
  return value.is_complex() ? at::view_as_complex(sum) : sum.to(value.scalar_type());
}

}  // namespace lockstep
