#pragma once

#include <string>

namespace lockstep::apps {

enum class DataKind { kMnistFiles, kClassFolders, kParquet, kGenerated };

/// The source of the images.
struct DataLocation {
  DataKind kind = DataKind::kGenerated;
  std::string path;            ///< folder or zip file; Parquet files to train on; empty for generated digits
  std::string why;             ///< one line: which source was chosen, and why
  std::string hint;            ///< lines that say how to get better data; may be empty
  std::string variable = "";   ///< environment variable that named the data; empty: none
  std::string test_path = "";  ///< Parquet files to test on; empty: none of their own
};

/// Resolves --data: `generated`, a path, or `auto`. `auto` takes the folder that LOCKSTEP_MNIST_DIR names,
/// ./data/mnist or ./mnist.zip, otherwise generated digits. If a folder or zip holds nothing but one folder,
/// such as pets.zip with pets/train and pets/test, takes the folder in it. A path is of Parquet files if it
/// is a URI, if its name ends in .parquet or .pq, or if it is a folder with such files, or with a folder
/// train of them and another one, test or validation. Throws DataError if a path, or the folder that the
/// variable names, contains neither MNIST's files nor train/ and test/; the message says what it contains.
DataLocation locate_data(const std::string& data);

}  // namespace lockstep::apps
