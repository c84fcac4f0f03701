// What changes the address.

import { type Address, written } from "./address";

/** The address, and how to go to another one. */
export interface Controls {
  address: Address;
  go: (next: Address) => void;
}

/** A link that changes what is shown, and that can be opened elsewhere or copied. */
export const Choice = ({
  to,
  go,
  isChosen,
  children,
}: {
  to: Address;
  go: Controls["go"];
  isChosen: boolean;
  children: string;
}) => (
  <a
    href={written(to)}
    aria-current={isChosen ? "page" : undefined}
    onClick={(event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      go(to);
    }}
  >
    {children}
  </a>
);
