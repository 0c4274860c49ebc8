#include "lockstep/torch_tpu/embedded_python.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "lockstep/runtime/base/errors.h"
#include "lockstep/tests/support/message_of.h"

namespace lockstep::torch_tpu {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(EmbeddedPython, NamesALibraryThatIsMissing) {
  const auto start = std::chrono::steady_clock::now();
  EXPECT_THAT(message_of<InvalidArgument>([] { EmbeddedPython python("/nowhere/libpython3.11.so"); }),
              AllOf(HasSubstr("'/nowhere/libpython3.11.so'"), HasSubstr("set LOCKSTEP_LIBPYTHON")));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2));
}

TEST(EmbeddedPython, NamesALibraryThatIsNoPython) {
  EXPECT_EQ(message_of<InvalidArgument>([] { EmbeddedPython python("libm.so.6"); }),
            "[torch_tpu] expected a shared library of Python, but libm.so.6 has no Py_IsInitialized: set "
            "LOCKSTEP_LIBPYTHON to the libpython3.X.so of the Python that has torch_tpu");
}

}  // namespace
}  // namespace lockstep::torch_tpu
