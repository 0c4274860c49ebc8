#include "lockstep/training/parameter_server/internal/saved_row_file.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>

#include "lockstep/runtime/base/files/checkpoint_error.h"
#include "lockstep/runtime/base/files/internal/input_file.h"
#include "lockstep/training/formats/internal/state_archive_reader.h"
#include "lockstep/training/formats/state_view.h"
#include "lockstep/training/parameter_server/internal/shard_file.h"

namespace lockstep {
namespace {

/// Larger tensors are read in pieces.
constexpr uint64_t kMostBytesAtOnce = uint64_t{64} << 10;

struct OpenArchive {
  explicit OpenArchive(const std::string& path) : file(path), reader(file) {}
  const InputFile file;
  StateArchiveReader reader;
};

class RowsInFile : public SavedRows {
 public:
  RowsInFile(std::shared_ptr<OpenArchive> archive, RowPiece all)
      : archive_(std::move(archive)), all_(std::move(all)), count_(all_.values.size(0)) {
    int64_t row_bytes = 0;
    for (const auto& [name, tensor] : all_.state) row_bytes += bytes_of_one(tensor);
    at_once_ = rows_of_piece(row_bytes + bytes_of_one(all_.values));
  }

  std::optional<RowPiece> next() override {
    if (next_ == count_) return std::nullopt;
    const int64_t end = std::min(count_, next_ + at_once_);
    RowPiece piece{archive_->reader.read_rows(all_.values, next_, end), {}};
    for (const auto& [name, tensor] : all_.state)
      piece.state.emplace_back(name, archive_->reader.read_rows(tensor, next_, end));
    next_ = end;
    return piece;
  }

  int64_t count_in(const RowRange& rows) const override {
    constexpr int64_t kNumbersAtOnce = 65536;
    const auto numbers = all_.find("rows");
    int64_t sum = 0;
    for (int64_t begin = 0; begin < count_; begin += kNumbersAtOnce)
      sum += count_in_range(
          archive_->reader.read_rows(numbers, begin, std::min(count_, begin + kNumbersAtOnce)), rows);
    return sum;
  }

 private:
  static int64_t bytes_of_one(const torch::Tensor& tensor) {
    return static_cast<int64_t>(tensor.nbytes()) / std::max<int64_t>(1, tensor.size(0));
  }

  const std::shared_ptr<OpenArchive> archive_;
  const RowPiece all_;
  const int64_t count_;
  int64_t at_once_ = 1;
  int64_t next_ = 0;
};

}  // namespace

ParameterShard::Saved open_growing_shard(const std::string& path) {
  const auto archive = std::make_shared<OpenArchive>(path);
  const auto state = archive->reader.read(kMostBytesAtOnce);
  const auto refuse = [&](const std::string& name, const torch::Tensor& tensor, const std::string& expected) {
    throw CheckpointError(path, name, expected, c10::str(tensor.scalar_type(), " of shape ", tensor.sizes()));
  };
  // Tensors that are not of rows are read as a whole.
  const auto whole = [&](const torch::Tensor& tensor) {
    return tensor.dim() == 0 ? tensor : archive->reader.read_rows(tensor, 0, tensor.size(0));
  };
  const StateView view(state, path);
  auto saved = shard_in(view, whole);
  if (saved.values.dim() == 0) refuse("values", saved.values, "rows");
  RowPiece all{saved.values, {}};
  std::vector<std::pair<std::string, torch::Tensor>> others;
  for (const auto& [name, tensor] : saved.optimizer) {
    if (tensor.dim() == 0 || name == "row_counts") {
      others.emplace_back(name, whole(tensor));
      continue;
    }
    if (tensor.size(0) != saved.values.size(0)) refuse(name, tensor, c10::str(saved.values.size(0), " rows"));
    all.state.emplace_back(name, tensor);
  }
  const auto numbers = all.find("rows");
  if (!numbers.defined()) throw CheckpointError(path, "optimizer", "the numbers of rows", "none");
  if (numbers.scalar_type() != torch::kLong || numbers.dim() != 1)
    refuse("rows", numbers, "numbers of int64");
  auto sizes = saved.values.sizes().vec();
  sizes[0] = 0;
  saved.values = torch::empty(sizes, saved.values.scalar_type());
  saved.optimizer = std::move(others);
  saved.rows = std::make_shared<RowsInFile>(archive, std::move(all));
  return saved;
}

}  // namespace lockstep
