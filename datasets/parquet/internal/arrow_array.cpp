#include "lockstep/datasets/parquet/internal/arrow_array.h"

#include <ATen/ops/ne.h>
#include <arrow/array.h>
#include <arrow/buffer.h>
#include <arrow/type.h>
#include <arrow/util/bit_util.h>

#include <algorithm>
#include <stdexcept>

#include "lockstep/datasets/parquet/internal/arrow_column.h"

namespace lockstep {

namespace {

// Arrow refuses binaries whose bytes are at null, as those of an empty tensor are.
constexpr uint8_t kNoBytes = 0;

/// A tensor's memory.
class TensorBuffer final : public arrow::Buffer {
 public:
  explicit TensorBuffer(const at::Tensor& tensor)
      : arrow::Buffer(tensor.nbytes() == 0 ? &kNoBytes : static_cast<const uint8_t*>(tensor.const_data_ptr()),
                      static_cast<int64_t>(tensor.nbytes())),
        tensor_(tensor) {}

 private:
  at::Tensor tensor_;
};

std::shared_ptr<arrow::DataType> number_type(const ParquetColumn& column) {
  switch (column.type) {
    case at::kBool:
      return arrow::boolean();
    case at::kChar:
      return arrow::int8();
    case at::kByte:
      return arrow::uint8();
    case at::kShort:
      return arrow::int16();
    case at::kInt:
      return arrow::int32();
    case at::kLong:
      return arrow::int64();
    case at::kHalf:
      return arrow::float16();
    case at::kFloat:
      return arrow::float32();
    case at::kDouble:
      return arrow::float64();
    default:
      throw std::invalid_argument("[ParquetWriter] column '" + column.name +
                                  "': expected bool, an integer, float16, float32 or float64, but got " +
                                  c10::toString(column.type));
  }
}

/// Returns a bit for each element, which is set if the element is true.
std::shared_ptr<arrow::Buffer> bits_of(const at::Tensor& marks) {
  const at::Tensor bytes = marks.contiguous();
  const auto* from = bytes.const_data_ptr<bool>();
  auto buffer = arrow::AllocateEmptyBitmap(bytes.numel());
  if (!buffer.ok()) throw std::bad_alloc();
  uint8_t* to = (*buffer)->mutable_data();
  for (int64_t i = 0; i < bytes.numel(); ++i) arrow::bit_util::SetBitTo(to, i, from[i]);
  return std::shared_ptr<arrow::Buffer>(std::move(*buffer));
}

std::shared_ptr<arrow::Array> numbers_array(const ParquetColumn& column, const at::Tensor& values,
                                            std::optional<double> null_value) {
  const at::Tensor flat = values.contiguous().view(-1);
  std::shared_ptr<arrow::Buffer> valid;
  if (null_value && holds_number(column.type, *null_value)) {
    // Comparisons of integers with a floating-point number are rounded to float.
    const bool is_float = at::isFloatingType(column.type);
    valid = bits_of(is_float ? flat.ne(*null_value) : flat.ne(static_cast<int64_t>(*null_value)));
  }
  std::shared_ptr<arrow::Buffer> data;
  if (column.type == at::kBool) {
    data = bits_of(flat);
  } else {
    data = std::make_shared<TensorBuffer>(flat);
  }
  return arrow::MakeArray(arrow::ArrayData::Make(number_type(column), flat.numel(), {valid, data}));
}

}  // namespace

std::shared_ptr<arrow::DataType> arrow_type(const ParquetColumn& column) {
  if (!column.unit.empty())
    throw std::invalid_argument("[ParquetWriter] column '" + column.name + "': expected no unit, but got " +
                                column.unit);
  const auto value = number_type(column);
  switch (column.shape) {
    case ParquetShape::kNumber:
      return value;
    case ParquetShape::kFixedList:
      return arrow::fixed_size_list(value, static_cast<int32_t>(column.length));
    case ParquetShape::kList:
      return arrow::large_list(value);
    default:
      if (column.type != at::kByte)
        throw std::invalid_argument("[ParquetWriter] column '" + column.name +
                                    "': expected strings to be of type Byte, but got " +
                                    c10::toString(column.type));
      return arrow::large_binary();
  }
}

void check_values(const ParquetColumn& column, const ParquetValues& values) {
  const bool is_list = column.shape == ParquetShape::kList || column.shape == ParquetShape::kBytes;
  const int64_t dimensions = column.shape == ParquetShape::kFixedList ? 2 : 1;
  const auto refuse = [&](const std::string& expected, const std::string& got) {
    throw std::invalid_argument("[ParquetWriter] column '" + column.name + "': expected " + expected +
                                ", but got " + got);
  };
  if (!values.values.defined()) refuse("values", "none");
  if (values.values.scalar_type() != column.type)
    refuse(c10::toString(column.type), c10::toString(values.values.scalar_type()));
  if (!values.values.is_cpu()) refuse("values on the CPU", values.values.device().str());
  if (values.values.dim() != dimensions || (dimensions == 2 && values.values.size(1) != column.length))
    refuse(dimensions == 2 ? "[rows, " + std::to_string(column.length) + "] values" : "[n] values",
           c10::str(values.values.sizes()));
  if (is_list != values.offsets.defined())
    refuse(is_list ? "offsets" : "no offsets", is_list ? "none" : "some");
  if (is_list && (values.offsets.scalar_type() != at::kLong || values.offsets.dim() != 1 ||
                  values.offsets.size(0) < 1 || !values.offsets.is_cpu()))
    refuse("int64 [rows + 1] offsets on the CPU",
           values.offsets.toString() + c10::str(values.offsets.sizes()));
  if (!is_list) return;
  // Arrow would read beyond the values.
  const at::Tensor offsets = values.offsets.contiguous();
  const auto* ends = offsets.const_data_ptr<int64_t>();
  const bool rises = std::is_sorted(ends, ends + offsets.numel());
  if (!rises || ends[0] < 0 || ends[offsets.numel() - 1] > values.values.size(0))
    refuse("offsets that rise from 0 or more to at most " + std::to_string(values.values.size(0)), "others");
}

std::shared_ptr<arrow::Array> arrow_array(const ParquetColumn& column, const ParquetValues& values,
                                          std::optional<double> null_value) {
  if (column.shape == ParquetShape::kBytes) {
    return std::make_shared<arrow::LargeBinaryArray>(
        values.offsets.size(0) - 1, std::make_shared<TensorBuffer>(values.offsets.contiguous()),
        std::make_shared<TensorBuffer>(values.values.contiguous()));
  }
  const auto numbers = numbers_array(column, values.values, null_value);
  const auto type = arrow_type(column);
  switch (column.shape) {
    case ParquetShape::kNumber:
      return numbers;
    case ParquetShape::kFixedList:
      return std::make_shared<arrow::FixedSizeListArray>(type, values.values.size(0), numbers);
    default:
      return std::make_shared<arrow::LargeListArray>(
          type, values.offsets.size(0) - 1, std::make_shared<TensorBuffer>(values.offsets.contiguous()),
          numbers);
  }
}

}  // namespace lockstep
