//! Prints the OpenAPI document of the interface, as `tegmen-admin/openapi.json` has it.

use tegmen_admin::Api;
use tegmen_store::Database;

fn main() {
    println!("{:#}", Api::<Database>::document());
}
