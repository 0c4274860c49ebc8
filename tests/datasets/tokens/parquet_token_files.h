#pragma once

#include <torch/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/datasets/parquet/parquet_writer.h"

namespace lockstep {

/// Writes the column input_ids, of lists of these ids.
inline void write_token_lists(const std::string& path, const std::vector<std::vector<uint32_t>>& documents,
                              int64_t rows_per_group, at::ScalarType type = at::kInt) {
  std::vector<int64_t> ids, offsets{0};
  for (const auto& document : documents) {
    ids.insert(ids.end(), document.begin(), document.end());
    offsets.push_back(static_cast<int64_t>(ids.size()));
  }
  ParquetWriter writer(
      {.path = path,
       .columns = {{.name = "input_ids", .shape = ParquetShape::kList, .length = 0, .type = type}},
       .rows_per_group = rows_per_group});
  writer.append({{.values = torch::tensor(ids, torch::kLong).to(type),
                  .offsets = torch::tensor(offsets, torch::kLong)}});
  writer.close();
}

/// Writes the column text.
inline void write_texts(const std::string& path, const std::vector<std::string>& documents,
                        int64_t rows_per_group) {
  std::vector<int64_t> offsets{0};
  std::vector<uint8_t> bytes;
  for (const auto& document : documents) {
    bytes.insert(bytes.end(), document.begin(), document.end());
    offsets.push_back(static_cast<int64_t>(bytes.size()));
  }
  ParquetWriter writer(
      {.path = path,
       .columns = {{.name = "text", .shape = ParquetShape::kBytes, .length = 0, .type = at::kByte}},
       .rows_per_group = rows_per_group});
  writer.append(
      {{.values = torch::tensor(bytes, torch::kByte), .offsets = torch::tensor(offsets, torch::kLong)}});
  writer.close();
}

}  // namespace lockstep
