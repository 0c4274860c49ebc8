#include "lockstep/runtime/tf32.h"

#include <ATen/Context.h>
#include <gtest/gtest.h>

namespace lockstep {
namespace {

TEST(Tf32Guard, AllowsTf32WhileItLivesAndPutsTheSettingsBack) {
  auto& context = at::globalContext();
  for (const bool products : {false, true}) {
    for (const bool convolutions : {false, true}) {
      context.setAllowTF32CuBLAS(products);
      context.setAllowTF32CuDNN(convolutions);
      {
        const Tf32Guard tf32;
        EXPECT_TRUE(context.allowTF32CuBLAS());
        EXPECT_TRUE(context.allowTF32CuDNN());
      }
      EXPECT_EQ(context.allowTF32CuBLAS(), products);
      EXPECT_EQ(context.allowTF32CuDNN(), convolutions);
    }
  }
  context.setAllowTF32CuBLAS(false);
}

}  // namespace
}  // namespace lockstep
