// print_parquet <file> <fill or none> [--empty] [--fill column=number]... [column...]: prints the columns and
// the row groups of a Parquet file as a line of JSON, for a test that compares them with another reader's.
// --empty reads null lists as empty ones, --backwards reads the last row of each row group first, and
// --attempts <number> limits requests to stores.
// --wait prints an empty line when the file is open and after each row group, and reads a byte of the
// standard input before each. Exits with 3 on a DataError and with 2 on a bad argument, whose message goes to
// stderr. print_parquet --find <place>... prints a line for each file that the places name.
// print_parquet --dataset <column, or * for all> <attempts> <place>... reads all rows of a data set, leaves
// out damaged row groups, and prints the first column's numbers and the lines about what was left out.
#include <torch/torch.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <limits>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/datasets/files/data_error.h"
#include "lockstep/datasets/parquet/internal/find_parquet_files.h"
#include "lockstep/datasets/parquet/parquet_dataset.h"
#include "lockstep/datasets/parquet/parquet_file.h"

namespace lockstep {
namespace {

void print_numbers(const at::Tensor& tensor) {
  const bool is_float = tensor.is_floating_point();
  const at::Tensor flat = tensor.to(is_float ? at::kDouble : at::kLong).contiguous().view({-1});
  std::cout << '[';
  for (int64_t i = 0; i < flat.numel(); ++i) {
    if (i > 0) std::cout << ',';
    if (!is_float)
      std::cout << flat.const_data_ptr<int64_t>()[i];
    else if (const double value = flat.const_data_ptr<double>()[i]; value != value)
      std::cout << "NaN";
    else if (value > std::numeric_limits<double>::max() || value < std::numeric_limits<double>::lowest())
      std::cout << (value > 0 ? "Infinity" : "-Infinity");
    else
      std::cout << value;
  }
  std::cout << ']';
}

void print_column(const ParquetColumn& column, const ParquetValues& values) {
  std::cout << "{\"type\":\"" << c10::toString(values.values.scalar_type()) << "\",\"expected_type\":\""
            << c10::toString(column.type) << "\",\"unit\":\"" << column.unit
            << "\",\"length\":" << column.length << ",\"shape\":[";
  for (int64_t i = 0; i < values.values.dim(); ++i) std::cout << (i > 0 ? "," : "") << values.values.size(i);
  std::cout << "],\"values\":";
  print_numbers(values.values);
  if (values.offsets.defined()) {
    std::cout << ",\"offsets\":";
    print_numbers(values.offsets);
  }
  std::cout << '}';
}

struct PrintOptions {
  ParquetFileOptions file;
  bool waits = false;
  bool is_backwards = false;
};

std::vector<uint32_t> backwards(int64_t rows) {
  std::vector<uint32_t> order(static_cast<size_t>(rows));
  std::iota(order.rbegin(), order.rend(), 0U);
  return order;
}

void print_file(const PrintOptions& options) {
  std::vector<ParquetColumn> columns;
  std::vector<std::vector<ParquetValues>> groups;
  std::vector<int64_t> rows;
  std::vector<int64_t> bytes;
  {
    const ParquetFile file(options.file);
    columns = file.columns();
    if (options.waits) std::cout << std::endl;
    for (int group = 0; group < file.num_row_groups(); ++group) {
      if (options.waits) std::cin.get();
      groups.push_back(options.is_backwards ? file.read_row_group(group, backwards(file.num_rows(group)))
                                            : file.read_row_group(group));
      if (options.waits) std::cout << std::endl;
      rows.push_back(file.num_rows(group));
      bytes.push_back(file.decoded_bytes(group));
    }
  }
  // The tensors outlive the file that they were read from.
  std::cout.precision(17);
  std::cout << '[';
  for (size_t group = 0; group < groups.size(); ++group) {
    std::cout << (group > 0 ? "," : "") << "{\"rows\":" << rows[group] << ",\"bytes\":" << bytes[group]
              << ",\"columns\":{";
    for (size_t i = 0; i < columns.size(); ++i) {
      std::cout << (i > 0 ? "," : "") << '"' << columns[i].name << "\":";
      print_column(columns[i], groups[group][i]);
    }
    std::cout << "}}";
  }
  std::cout << "]\n";
}

int print_or_say_why(const PrintOptions& options) {
  try {
    print_file(options);
    return 0;
  } catch (const DataError& error) {
    std::cerr << error.what() << '\n';
    return 3;
  }
}

void add_argument(const std::string& argument, const std::string& next, int& place, PrintOptions& options) {
  if (argument == "--empty") {
    options.file.null_lists_are_empty = true;
  } else if (argument == "--backwards") {
    options.is_backwards = true;
  } else if (argument == "--wait") {
    options.waits = true;
  } else if (argument == "--attempts") {
    options.file.store_attempts = std::stoi(next);
    ++place;
  } else if (argument == "--fill") {
    const size_t equals = next.find('=');
    options.file.column_null_fills[next.substr(0, equals)] = std::stod(next.substr(equals + 1));
    ++place;
  } else {
    options.file.columns.push_back(argument);
  }
}

int print_files(const std::vector<std::string>& places) {
  try {
    for (const std::string& file : find_parquet_files(places)) std::cout << file << '\n';
    return 0;
  } catch (const DataError& error) {
    std::cerr << error.what() << '\n';
    return 3;
  }
}

int print_dataset(const std::string& column, int attempts, const std::vector<std::string>& places) {
  try {
    std::vector<std::string> left_out;
    const ParquetDataset dataset(
        {.paths = places,
         .columns = column == "*" ? std::vector<std::string>() : std::vector<std::string>{column},
         .store_attempts = attempts,
         .skips_unreadable = true,
         .on_message = [&](const std::string& line) { left_out.push_back(line); }});
    std::vector<size_t> all(*dataset.size());
    std::iota(all.begin(), all.end(), size_t{0});
    print_numbers(dataset.get_batch(all).columns.front().values);
    std::cout << '\n';
    for (const std::string& line : left_out) std::cout << line << '\n';
    return 0;
  } catch (const DataError& error) {
    std::cerr << error.what() << '\n';
    return 3;
  }
}

int print_all(int argc, char** argv) {
  if (argc > 1 && argv[1] == std::string("--find")) return print_files({argv + 2, argv + argc});
  if (argc > 4 && argv[1] == std::string("--dataset"))
    return print_dataset(argv[2], std::stoi(argv[3]), {argv + 4, argv + argc});
  if (argc < 3) throw std::invalid_argument("expected <file or folder> <fill or none> [column...]");
  PrintOptions options{.file = {.path = argv[1]}};
  if (argv[2] != std::string("none")) options.file.null_fill = std::stod(argv[2]);
  for (int i = 3; i < argc; ++i) add_argument(argv[i], i + 1 < argc ? argv[i + 1] : "", i, options);
  if (!std::filesystem::is_directory(options.file.path) || std::filesystem::is_empty(options.file.path))
    return print_or_say_why(options);
  int code = 0;
  for (const auto& file : std::filesystem::directory_iterator(argv[1])) {
    options.file.path = file.path();
    code = std::max(code, print_or_say_why(options));
  }
  return code;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  try {
    return lockstep::print_all(argc, argv);
  } catch (const std::invalid_argument& error) {
    std::cerr << error.what() << '\n';
    return 2;
  }
}
