#pragma once

#include <cstdint>

namespace lockstep {

/// The numbering and the memory limit of a table whose rows are made as their ids occur.
///
/// Row numbers are the ids, scattered over 2^`num_bits` numbers by a bijection, so that each of n servers can
/// hold an n-th of the range, whichever ids occur.
struct RowGrowth {
  /// Limit of the memory for the table's rows, their optimizer state, counts and index. 0: no limit.
  int64_t max_bytes = 0;
  int num_bits = 0;
  /// Whether rows with numbers in a checkpoint, those of a table that did not grow, are the rows of these
  /// ids.
  bool takes_numbered_rows = false;

  bool operator==(const RowGrowth&) const = default;
};

/// Interface of a ServedTable whose rows are made as their ids occur. The shape of its parameter has
/// 2^`num_bits` rows.
///
/// Example:
///
///     GrowingEmbedding embedding(GrowingEmbeddingOptions{.embedding_dim = 8, .max_bytes = 64 << 20});
///     const GrowingTable& table = *embedding;
///     table.row_growth().max_bytes;  // 67108864
class GrowingTable {
 public:
  virtual ~GrowingTable() = default;
  virtual RowGrowth row_growth() const = 0;
};

/// Returns how many bits number the rows of a table with this many columns: as many as leave the number of
/// bytes of such a table below 2^62. Throws InvalidArgument unless `num_columns` is 1 to 2^24.
int row_bits_of(int64_t num_columns);

/// Returns the row of an id, a bijection of 0 to 2^`num_bits` - 1 in which neighbouring ids are far apart:
/// three shifts with exclusive or between two multiplications, as in SplitMix (Steele, Lea and Flood, 2014).
/// `num_bits` is 2 to 62.
int64_t scattered_row(int64_t id, int num_bits);
/// Inverse of scattered_row().
int64_t id_of_scattered_row(int64_t row, int num_bits);

}  // namespace lockstep
